// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

// Simulates the library that CUDA_INJECTION64_PATH names under nsys and ncu.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() {
  std::printf("injected %s\n", std::getenv("CUDA_INJECTION64_PATH"));
  return 1;
}
