// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

// client_open local|deepbind|dlmopen LIBRARY ARGUMENT…: opens a library that is linked to the driver and runs its
// client_main. `dlmopen` opens the library in a separate namespace, which does not contain the preloaded libraries.
int main(int argc, char** argv) {
  if (argc < 3) return 1;
  const std::string how = argv[1];
  void* library = nullptr;
  if (how == "dlmopen") {
    library = ::dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
  } else {
    library = ::dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | (how == "deepbind" ? RTLD_DEEPBIND : 0));
  }
  void* const entry = library == nullptr ? nullptr : ::dlsym(library, "client_main");
  if (entry == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    return 1;
  }
  return reinterpret_cast<int (*)(int, char**)>(entry)(argc - 3, argv + 3);
}
