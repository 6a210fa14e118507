// SPDX-License-Identifier: Apache-2.0
#include "common/loaded_symbol.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace cacheshim {
namespace {

const link_map* find_object(const char* part) {
  for (const link_map* object = first_loaded(); object != nullptr; object = object->l_next) {
    if (std::strstr(object->l_name, part) != nullptr) return object;
  }
  return nullptr;
}

TEST(LoadedSymbol, TheListIsTheLoadersOwn) {
  ASSERT_NE(first_loaded(), nullptr);
  EXPECT_STREQ(first_loaded()->l_name, "");  // the program itself
  EXPECT_NE(find_object("libc.so.6"), nullptr);
}

TEST(LoadedSymbol, FindsWhatDlsymFinds) {
  const link_map* const libc = find_object("libc.so.6");
  ASSERT_NE(libc, nullptr);
  void* const handle = ::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  for (const char* name : {"dlsym", "dlvsym", "dlopen", "dladdr", "dlerror", "getpid", "regcomp"}) {
    EXPECT_EQ(find_symbol_in(*libc, name), ::dlsym(handle, name)) << name;
  }
  (void)::dlclose(handle);
}

TEST(LoadedSymbol, FindsNothingElse) {
  const link_map* const libc = find_object("libc.so.6");
  ASSERT_NE(libc, nullptr);
  for (const char* name : {"", "cuInit", "dlsy", "dlsymx", "environ", "_ZN9cacheshim"}) {
    EXPECT_EQ(find_symbol_in(*libc, name), nullptr) << name;
  }
  for (const link_map* object = first_loaded(); object != nullptr; object = object->l_next) {
    EXPECT_EQ(find_symbol_in(*object, "nobody_defines_this"), nullptr) << object->l_name;
  }
}

TEST(LoadedSymbol, TheLoaderIsLibcsAndWorks) {
  const LibcLoader loader = libc_loader();
  ASSERT_NE(loader.find, nullptr);
  Dl_info info{};
  ASSERT_NE(loader.locate(reinterpret_cast<void*>(loader.find), &info), 0);
  EXPECT_NE(std::string(info.dli_fname).find("libc.so.6"), std::string::npos);
  EXPECT_NE(loader.find(RTLD_DEFAULT, "getpid"), nullptr);
  EXPECT_NE(loader.find_version, nullptr);
  EXPECT_EQ(loader.open("libnobody.so.1", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace cacheshim
