// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/process.h"

namespace cacheshim::cuda {
namespace {

// Sets CUDA_MODULE_LOADING before main. The driver reads this variable in cuInit, so the setting also works for
// programs whose calls bypass the hooks, unless the driver was initialized before this constructor ran.
[[gnu::constructor]] void start_process() { start(); }

}  // namespace
}  // namespace cacheshim::cuda
