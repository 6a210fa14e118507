// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>

#include "tests/cuda/fake_driver.h"

// Looks up functions in an old driver, which lacks one of them, as careful programs do. The library
// must not change what dlerror returns.
namespace {

template <class Function>
Function find(void* driver, const char* name) {
  (void)::dlerror();
  auto* const found = reinterpret_cast<Function>(::dlsym(driver, name));
  const char* const error = ::dlerror();
  std::printf("%s: %s\n", name, error == nullptr ? "found" : "error");
  return found;
}

}  // namespace

int main() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 1;
  const auto init = find<decltype(&::cuInit)>(driver, "cuInit");
  const auto load = find<decltype(&::cuModuleLoadData)>(driver, "cuModuleLoadData");
  const auto make_context = find<decltype(&::cuCtxCreate_v2)>(driver, "cuCtxCreate_v2");
  (void)find<void*>(driver, "cuModuleGetLoadingMode");
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  if (init(0) != CUDA_SUCCESS || make_context(&context, 0, 0) != CUDA_SUCCESS) return 2;
  return load(&module, "tail") == CUDA_SUCCESS ? 0 : 2;
}
