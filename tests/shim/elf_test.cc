// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>
#include <utility>

#include "tests/shim/elf_file.h"

// What the preloaded library promises to every process of every container that it is loaded into.
namespace cacheshim {
namespace {

const std::set<std::string>& table() {
  static const std::set<std::string> names{
#define CACHESHIM_SYMBOL(name, group) #name,
#include "shim/symbols.def"
#undef CACHESHIM_SYMBOL
#define CACHESHIM_LOADER_SYMBOL(name) #name,
#include "cuda_hooks/loader_symbols.def"
#undef CACHESHIM_LOADER_SYMBOL
  };
  return names;
}

const std::set<std::string>& cuda_table() {
  static const std::set<std::string> names{
#define CACHESHIM_CUDA_SYMBOL(name, group, parameters, arguments) #name,
#include "cuda_hooks/symbols.def"
#undef CACHESHIM_CUDA_SYMBOL
  };
  return names;
}

ElfFile shim() { return ElfFile(std::getenv("CACHESHIM_LIBRARY")); }

ElfFile libc() {
  Dl_info info{};
  (void)::dladdr(reinterpret_cast<void*>(&::getpid), &info);  // fails the test by an empty name
  return ElfFile(info.dli_fname);
}

// Siblings of interposed names that libc exports and that are left to it.
const std::map<std::string, std::string>& left_to_libc() {
  static const std::map<std::string, std::string> reasons{
      {"_IO_fopen", "no header has named it since glibc 2.1"},
  };
  return reasons;
}

bool has(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

// mkstemp64 → mkstemp, __open64_2 → open, __lxstat → lstat
std::string base_of(std::string name) {
  if (has(name, "__")) name.erase(0, 2);
  for (const char* suffix : {"_2", "64"}) {
    const std::size_t length = std::strlen(suffix);
    if (name.size() > length && name.substr(name.size() - length) == suffix) {
      name.resize(name.size() - length);
    }
  }
  return std::regex_replace(name, std::regex("^(l?)x(stat|mknod)|^fx(statat)"), "$1$2$3");
}

std::set<std::string> siblings_of(const std::string& base) {
  std::set<std::string> names;
  for (const char* prefix : {"", "_", "__", "__x", "_IO_", "__libc_"}) {
    for (const char* suffix : {"", "64", "_2", "64_2", "_chk", "_r", "_time64"}) {
      names.insert(prefix + base + suffix);
    }
  }
  return names;
}

// 2.17 → {2, 17}
std::pair<int, int> version_number(const std::string& version) {
  std::smatch match;
  if (!std::regex_search(version, match, std::regex("^GLIBC_(\\d+)\\.(\\d+)"))) return {99, 0};
  return {std::stoi(match[1]), std::stoi(match[2])};
}

TEST(ShimLibrary, ExportsItsTablesAndNothingElse) {
  std::set<std::string> both = table();
  both.insert(cuda_table().begin(), cuda_table().end());
  EXPECT_EQ(shim().exports(), both);
}

TEST(ShimLibrary, InterposesOnlyWhatLibcHas) {
  const std::set<std::string> libc_exports = libc().exports();
  for (const std::string& name : table()) EXPECT_TRUE(libc_exports.count(name)) << name;
}

TEST(ShimLibrary, NeedsLibcAlone) {
  const std::set<std::string> allowed{"libc.so.6", "libdl.so.2"};
  for (const std::string& name : shim().needed()) EXPECT_TRUE(allowed.count(name)) << name;
}

TEST(ShimLibrary, UsesNothingOfTheCxxRuntime) {
  for (const DynamicSymbol& symbol : shim().symbols()) {
    if (symbol.defined) continue;
    // Every shared library refers to this one, weakly; libc has it.
    if (symbol.name == "__cxa_finalize" && symbol.weak) continue;
    for (const char* prefix : {"_Z", "__cxa_", "__gxx_", "_Unwind_", "__tls_get_addr"}) {
      EXPECT_FALSE(has(symbol.name, prefix)) << symbol.name;
    }
  }
}

TEST(ShimLibrary, AllocatesInNoHook) {
  const std::set<std::string> allocators{"malloc", "calloc", "strdup", "free", "aligned_alloc"};
  for (const DynamicSymbol& symbol : shim().symbols()) {
    EXPECT_FALSE(allocators.count(symbol.name)) << symbol.name;
  }
}

TEST(ShimLibrary, LoadsOnOldSystems) {
  for (const DynamicSymbol& symbol : shim().symbols()) {
    if (symbol.defined || symbol.version.empty()) continue;
    EXPECT_LE(version_number(symbol.version), std::make_pair(2, 17))
        << symbol.name << "@" << symbol.version;
  }
}

TEST(ShimLibrary, CoversEverySibling) {
  const std::set<std::string> libc_exports = libc().exports();
  for (const std::string& name : table()) {
    for (const std::string& sibling : siblings_of(base_of(name))) {
      if (!libc_exports.count(sibling)) continue;
      EXPECT_TRUE(table().count(sibling) || left_to_libc().count(sibling))
          << sibling << " is a sibling of " << name;
    }
  }
}

}  // namespace
}  // namespace cacheshim
