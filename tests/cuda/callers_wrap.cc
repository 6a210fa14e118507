// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <initializer_list>

// This chained() wraps the next library's chained(), which dlsym(RTLD_NEXT) must find. If dlsym wrongly returns this
// function itself, the nested call returns -1000, which ends the recursion.
static int depth = 0;

extern "C" [[gnu::visibility("default")]] int chained() {
  if (++depth > 1) return -1000;
  auto* const next = reinterpret_cast<int (*)()>(::dlsym(RTLD_NEXT, "chained"));
  const int answer = next == nullptr ? -1 : next() + 10;
  --depth;
  return answer;
}

extern "C" [[gnu::visibility("default")]] const char* next_version_of_getpid() {
  for (const char* version : {"GLIBC_2.2.5", "GLIBC_2.17"}) {
    if (::dlvsym(RTLD_NEXT, "getpid", version) != nullptr) return version;
  }
  return ::dlerror();
}
