// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/loaded_symbol.h"
#include "tests/cuda/client.h"

// client_lookup ROUTE LOAD FILE [OPTION…]
//
// This client is not linked to the driver. ROUTE says how it finds the driver's functions:
//  dlsym, dlvsym: by the function of this name, on a handle from dlopen
//  default: dlsym(RTLD_DEFAULT)
//  v1, v2: all functions by this version of cuGetProcAddress (the CUDA runtime uses v2)
//  v2-v1: cuGetProcAddress_v2 finds version 1, which finds the other functions
//  torch: dlsym on a handle from dlopen(RTLD_NOLOAD)
//  dlmopen: in a second copy of the driver
//  raw: from the ELF tables, without a call that a hook could intercept

using cacheshim::test::Api;

namespace {

void* handle = nullptr;
decltype(&::cuGetProcAddress) get_v1 = nullptr;
decltype(&::cuGetProcAddress_v2) get_v2 = nullptr;

// Returns the name without its version suffix, as cuGetProcAddress expects it.
std::string plain(const char* name) {
  std::string text = name;
  if (text.size() > 3 && text.compare(text.size() - 3, 3, "_v2") == 0) text.resize(text.size() - 3);
  return text;
}

void* find_raw(const char* name) {
  const link_map* object = cacheshim::first_loaded();
  while (object != nullptr && std::strstr(object->l_name, "libcuda.so") == nullptr) {
    object = object->l_next;
  }
  if (object == nullptr) return nullptr;
  const cacheshim::LoadedObject driver(*object);
  return driver.function(driver.find(cacheshim::SymbolName(name)));
}

void* find(const std::string& route, const char* name) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  const bool is_fake = std::strncmp(name, "fake_", 5) == 0;  // the real driver has no such function
  if (is_fake || route == "dlsym" || route == "torch" || route == "dlmopen") {
    return ::dlsym(handle, name);
  }
  if (route == "default") return ::dlsym(RTLD_DEFAULT, name);
  if (route == "dlvsym") return ::dlvsym(handle, name, "FAKE_1");
  if (route == "raw") return find_raw(name);
  if (get_v1 != nullptr) {
    (void)get_v1(plain(name).c_str(), &function, 11030, 0);
  } else {
    (void)get_v2(plain(name).c_str(), &function, 13000, 0, &status);
  }
  return function;
}

void open_driver(const std::string& route) {
  const int scope = route == "default" ? RTLD_GLOBAL : RTLD_LOCAL;
  handle = ::dlopen("libcuda.so.1", RTLD_NOW | scope);
  if (route == "torch") handle = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (route == "dlmopen") {
    // Calls cuInit of the first copy, so that hooks for this copy exist. The hooks for the second copy must not call
    // the first one.
    auto* const init = reinterpret_cast<decltype(&::cuInit)>(::dlsym(handle, "cuInit"));
    if (init == nullptr || init(0) != CUDA_SUCCESS) std::exit(1);
    handle = ::dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
  }
  if (handle == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::exit(1);
  }
  if (route == "v1") {
    get_v1 = reinterpret_cast<decltype(get_v1)>(::dlsym(handle, "cuGetProcAddress"));
  }
  if (route == "v2" || route == "v2-v1") {
    get_v2 = reinterpret_cast<decltype(get_v2)>(::dlsym(handle, "cuGetProcAddress_v2"));
  }
  if (route == "v2-v1") {
    void* function = nullptr;
    (void)get_v2("cuGetProcAddress", &function, 11030, 0, nullptr);
    get_v1 = reinterpret_cast<decltype(get_v1)>(function);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  const std::string route = argv[1];
  open_driver(route);
  Api api;
#define CACHESHIM_TEST_FUNCTION(name) \
  api.name = reinterpret_cast<decltype(api.name)>(find(route, #name));
#include "tests/cuda/functions.def"
#undef CACHESHIM_TEST_FUNCTION
  return cacheshim::test::run_scenario(api, cacheshim::test::read_scenario(argc - 2, argv + 2));
}
