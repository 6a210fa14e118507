// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstring>
#include <initializer_list>

#include "tests/cuda/fake_driver.h"

// An interposing library like HAMi-core. It exports dlsym as a plain function, finds libc's dlsym
// by dlvsym, and returns its own cuInit instead of the driver's.
namespace {

using Find = void* (*)(void*, const char*);
decltype(&::cuInit) real_init = nullptr;

CUresult own_init(unsigned int flags) {
  return real_init(flags) == CUDA_SUCCESS ? CUDA_SUCCESS : kErrorNotFound;
}

Find find_libc() {
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"}) {
    if (void* const found = ::dlvsym(RTLD_NEXT, "dlsym", version)) {
      return reinterpret_cast<Find>(found);
    }
  }
  return nullptr;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void* dlsym(void* handle, const char* name) noexcept {
  static const Find libc = find_libc();
  void* const found = libc(handle, name);
  if (found == nullptr || std::strcmp(name, "cuInit") != 0) return found;
  real_init = reinterpret_cast<decltype(real_init)>(found);
  return reinterpret_cast<void*>(&own_init);
}
