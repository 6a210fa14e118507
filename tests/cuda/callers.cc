// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

// callers PLUGIN: prints what dlsym and dlvsym return when called from each of several libraries.
// The test compares the output with and without the preloaded library.
extern "C" int chained();
extern "C" int base_is_linked();
extern "C" const char* next_version_of_getpid();

namespace {

const char* owner(void* address) {
  Dl_info info{};
  if (address == nullptr || ::dladdr(address, &info) == 0) return "nobody";
  const char* const slash = std::strrchr(info.dli_fname, '/');
  return slash == nullptr ? info.dli_fname : slash + 1;
}

const char* error() {
  const char* const text = ::dlerror();
  return text == nullptr ? "no error" : text;
}

void print(const char* what, void* found) {
  std::printf("%s: %s, %s\n", what, owner(found), error());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || base_is_linked() != 1) return 1;
  (void)::dlerror();
  std::printf("chained: %d\n", chained());
  std::printf("getpid@%s\n", next_version_of_getpid());
  print("main next chained", ::dlsym(RTLD_NEXT, "chained"));
  print("main default chained", ::dlsym(RTLD_DEFAULT, "chained"));
  print("main default missing", ::dlsym(RTLD_DEFAULT, "nobody_defines_this"));
  print("main next missing", ::dlsym(RTLD_NEXT, "nobody_defines_this"));
  print("main default hidden", ::dlsym(RTLD_DEFAULT, "only_for_the_plugin"));
  void* const plugin = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  auto* const sees = reinterpret_cast<int (*)()>(::dlsym(plugin, "plugin_sees"));
  std::printf("plugin default: %d\n", sees == nullptr ? -2 : sees());
  print("main default hidden still", ::dlsym(RTLD_DEFAULT, "only_for_the_plugin"));
  print("handle missing", ::dlsym(plugin, "cuNobodyDefinesThis"));
  print("handle inherited", ::dlsym(plugin, "only_for_the_plugin"));
  print("version missing", ::dlvsym(RTLD_DEFAULT, "getpid", "NOBODY_1.0"));
  print("handle version missing", ::dlvsym(plugin, "plugin_sees", "NOBODY_1.0"));
  return 0;
}
