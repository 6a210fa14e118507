// SPDX-License-Identifier: Apache-2.0
#include "common/loaded_symbol.h"

#include <gtest/gtest.h>
#include <sys/auxv.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

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

TEST(LoadedSymbol, TheListOfObjectsBeginsWithTheProgramAndContainsLibc) {
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
  EXPECT_EQ(own_object(), first_loaded());  // the code under test is linked into the program
  EXPECT_TRUE(is_glibc_loaded());
  EXPECT_TRUE(LoadedObject(*find_object("libc.so.6")).is_called("libc.so.6"));
  EXPECT_FALSE(LoadedObject(*first_loaded()).is_called("libc.so.6"));
}

TEST(LoadedSymbol, DoesNotMistakeAnotherProgramForOurs) {
  EXPECT_FALSE(is_marked_program(kProgramMark));
  // The symbol is in a library of the program, but not in the program itself.
  EXPECT_FALSE(is_marked_program(SymbolName("getpid")));
}

// A copy of this process's vDSO that looks as if it had been linked at the nonzero address `linked_at`, as the vDSO of
// user-mode Linux is.
class LinkedVdso {
 public:
  explicit LinkedVdso(std::uintptr_t linked_at) {
    const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(::getauxval(AT_SYSINFO_EHDR));
    if (header == nullptr) return;
    const auto* const bytes = reinterpret_cast<const char*>(header);
    const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(bytes + header->e_phoff);
    std::size_t dynamic = 0;
    for (unsigned i = 0; i < header->e_phnum; ++i) {
      if (segments[i].p_type == PT_LOAD) image_.assign(bytes, bytes + segments[i].p_memsz);
      if (segments[i].p_type == PT_DYNAMIC) dynamic = segments[i].p_vaddr;
    }
    object_.l_addr = reinterpret_cast<std::uintptr_t>(image_.data()) - linked_at;
    object_.l_ld = reinterpret_cast<ElfW(Dyn)*>(image_.data() + dynamic);
    for (ElfW(Dyn)* entry = object_.l_ld; entry->d_tag != DT_NULL; ++entry) {
      const bool is_address = entry->d_tag == DT_SYMTAB || entry->d_tag == DT_STRTAB ||
                              entry->d_tag == DT_GNU_HASH || entry->d_tag == DT_VERSYM;
      if (is_address) entry->d_un.d_ptr += linked_at;
    }
  }
  bool exists() const { return !image_.empty(); }
  const link_map& object() const { return object_; }

 private:
  std::vector<char> image_;
  link_map object_{};
};

TEST(LoadedSymbol, ReadsAVdsoThatIsLinkedAtAnyAddress) {
  for (const std::uintptr_t linked_at : {0UL, 0x10000000UL, 0xffffffffff700000UL}) {
    const LinkedVdso vdso(linked_at);
    if (!vdso.exists()) GTEST_SKIP() << "this process has no vDSO";
    const LoadedObject loaded(vdso.object());
    if (linked_at == 0 && !loaded.is_readable()) GTEST_SKIP() << "the vDSO has no DT_GNU_HASH";
    EXPECT_NE(loaded.find(SymbolName("clock_gettime")), nullptr) << linked_at;
    EXPECT_EQ(loaded.find(SymbolName("open")), nullptr) << linked_at;
  }
}

TEST(LoadedSymbol, GivesNoAnswerForUnreadableObjects) {
  const LoadedObject nothing;
  EXPECT_FALSE(nothing.is_readable());
  EXPECT_EQ(nothing.find(SymbolName("open")), nullptr);
  EXPECT_EQ(nothing.function(nullptr), nullptr);
}

// For an ifunc, the symbol table contains the address of a resolver, which selects the function at run time.
TEST(LoadedSymbol, LeavesIndirectFunctionsToTheLoader) {
  const LoadedObject libc(*find_object("libc.so.6"));
  const ElfW(Sym)* const symbol = libc.find(SymbolName("memcpy"));
  ASSERT_NE(symbol, nullptr);
  EXPECT_EQ(libc.function(symbol), nullptr);
}

TEST(LoadedSymbol, LibcLoaderReturnsWorkingFunctionsOfLibc) {
  const LibcLoader loader = libc_loader();
  ASSERT_NE(loader.dlsym, nullptr);
  Dl_info info{};
  ASSERT_NE(loader.dladdr(reinterpret_cast<void*>(loader.dlsym), &info), 0);
  EXPECT_NE(std::string(info.dli_fname).find("libc.so.6"), std::string::npos);
  EXPECT_NE(loader.dlsym(RTLD_DEFAULT, "getpid"), nullptr);
  EXPECT_EQ(loader.dlopen("libnobody.so.1", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace cacheshim
