// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/process.h"

namespace cacheshim::cuda {
namespace {

// The setting works for every way to the driver, hooked or not, except for a driver that was
// initialized earlier: the driver reads the variable in cuInit.
[[gnu::constructor]] void start_process() { start(); }

}  // namespace
}  // namespace cacheshim::cuda
