// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/process.h"

namespace cacheshim::cuda {
namespace {

// What is set here holds for every way to the driver, hooked or not, but for those that were gone
// before: the driver reads the variable in cuInit.
[[gnu::constructor]] void start_process() { start(); }

}  // namespace
}  // namespace cacheshim::cuda
