// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

// Runs without the CUDA driver. Finds the preloaded library's cuInit by RTLD_DEFAULT, makes another
// call of dlsym fail, and calls cuInit. dlerror must then still return the error of that dlsym call.
int main() {
  using Init = unsigned (*)(unsigned);
  const auto init = reinterpret_cast<Init>(dlsym(RTLD_DEFAULT, "cuInit"));
  if (init == nullptr) return 2;
  (void)dlsym(RTLD_DEFAULT, "name_of_the_application");
  std::printf("cuInit: %u\n", init(0));
  const char* const error = dlerror();
  const bool is_own = error != nullptr && std::strstr(error, "name_of_the_application") != nullptr;
  std::puts(is_own ? "the application's error" : error == nullptr ? "no error" : error);
  return 0;
}
