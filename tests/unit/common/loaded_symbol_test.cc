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

void* find_function(const link_map& object, const char* name) {
  const LoadedObject loaded(object);
  return loaded.function(loaded.find(SymbolName(name)));
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
  // Some of these functions have several versions; dlsym returns the default version.
  for (const char* name : {"dlsym", "dlvsym", "dlopen", "dladdr", "dlerror", "getpid", "regcomp",
                           "realpath", "posix_spawn", "fopen", "fmemopen", "nftw", "glob64"}) {
    EXPECT_EQ(find_function(*libc, name), ::dlsym(handle, name)) << name;
  }
  (void)::dlclose(handle);
}

TEST(LoadedSymbol, FindsNothingElse) {
  const link_map* const libc = find_object("libc.so.6");
  ASSERT_NE(libc, nullptr);
  for (const char* name : {"", "cuInit", "dlsy", "dlsymx", "environ", "_ZN9cacheshim"}) {
    EXPECT_EQ(find_function(*libc, name), nullptr) << name;
  }
  for (const link_map* object = first_loaded(); object != nullptr; object = object->l_next) {
    EXPECT_EQ(find_function(*object, "nobody_defines_this"), nullptr) << object->l_name;
  }
}

TEST(LoadedSymbol, FindsItsOwnObjectAndLibc) {
  ASSERT_NE(own_object(), nullptr);
  EXPECT_EQ(own_object(), first_loaded());  // the test links the code into the program
  EXPECT_TRUE(is_glibc_loaded());
  EXPECT_TRUE(LoadedObject(*find_object("libc.so.6")).is_called("libc.so.6"));
  EXPECT_FALSE(LoadedObject(*first_loaded()).is_called("libc.so.6"));
}

TEST(LoadedSymbol, DoesNotMistakeAnotherProgramForOurs) {
  EXPECT_FALSE(is_marked_program(kProgramMark));
  // The symbol is in a library of the program, but not in the program itself.
  EXPECT_FALSE(is_marked_program(SymbolName("getpid")));
}

TEST(LoadedSymbol, GivesNoAnswerForUnreadableObjects) {
  const LoadedObject nothing;
  EXPECT_FALSE(nothing.is_readable());
  EXPECT_EQ(nothing.find(SymbolName("open")), nullptr);
  EXPECT_EQ(nothing.function(nullptr), nullptr);
}

// The symbol table contains no address of a function that is selected at run time (an ifunc).
TEST(LoadedSymbol, LeavesIndirectFunctionsToTheLoader) {
  const LoadedObject libc(*find_object("libc.so.6"));
  const ElfW(Sym)* const symbol = libc.find(SymbolName("memcpy"));
  ASSERT_NE(symbol, nullptr);
  EXPECT_EQ(libc.function(symbol), nullptr);
}

TEST(LoadedSymbol, TheLoaderIsLibcsAndWorks) {
  const LibcLoader loader = libc_loader();
  ASSERT_NE(loader.find, nullptr);
  Dl_info info{};
  ASSERT_NE(loader.locate(reinterpret_cast<void*>(loader.find), &info), 0);
  EXPECT_NE(std::string(info.dli_fname).find("libc.so.6"), std::string::npos);
  EXPECT_NE(loader.find(RTLD_DEFAULT, "getpid"), nullptr);
  EXPECT_EQ(loader.open("libnobody.so.1", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace cacheshim
