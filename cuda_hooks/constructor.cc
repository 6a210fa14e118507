// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/process.h"

namespace cacheshim::cuda {
namespace {

// Sets the variable before main. The driver reads it in cuInit, so the setting also works for
// programs that reach the driver without a hook, except if the driver was initialized earlier.
[[gnu::constructor]] void start_process() { start(); }

}  // namespace
}  // namespace cacheshim::cuda
