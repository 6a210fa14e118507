// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>
#include <sstream>
#include <utility>

#include "tests/shim/elf_file.h"

// Tests the library's ELF symbols and dependencies: any process in any container must be able to load
// the library.
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
  // If dladdr() fails, dli_fname stays null, and the construction of the string throws.
  (void)::dladdr(reinterpret_cast<void*>(&::getpid), &info);
  return ElfFile(info.dli_fname);
}

// Returns the functions that the library does not interpose, each with the reason.
const std::map<std::string, std::string>& left_to_libc() {
  static const std::map<std::string, std::string> reasons{
#define CACHESHIM_LEFT(name, what, reason) {#name, reason},
#include "shim/left_to_libc.def"
#undef CACHESHIM_LEFT
  };
  return reasons;
}

// All functions by which a program may access a file. Collected from the symbols that CPython, libtorch, libtriton,
// ptxas, uv, git and GNU's compilers import, and from other libraries that interpose libc's functions.
constexpr const char* kFileFunctions =
    "open open64 __open __open64 __open_2 __open64_2 openat openat64 __openat_2 __openat64_2 openat2 "
    "creat creat64 fopen fopen64 freopen freopen64 "
    "mkstemp mkostemp mkstemps mkostemps mkstemp64 mkostemp64 mkstemps64 mkostemps64 mkdtemp mktemp "
    "tmpfile tmpfile64 tmpnam tempnam "
    "stat lstat fstatat stat64 lstat64 fstatat64 __xstat __lxstat __fxstatat __xstat64 __lxstat64 "
    "__fxstatat64 statx access faccessat eaccess euidaccess statfs statfs64 __statfs statvfs "
    "statvfs64 pathconf "
    "rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat remove rmdir mkdir "
    "mkdirat mknod mknodat mkfifo mkfifoat __xmknod __xmknodat truncate truncate64 "
    "readlink readlinkat __readlink_chk __readlinkat_chk realpath __realpath_chk "
    "canonicalize_file_name chdir fchdir getcwd __getcwd_chk getwd __getwd_chk get_current_dir_name "
    "chmod fchmod fchmodat lchmod chown fchown fchownat lchown utime utimes lutimes futimes futimesat "
    "utimensat futimens "
    "getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr listxattr llistxattr flistxattr "
    "removexattr lremovexattr fremovexattr "
    "opendir readdir readdir64 readdir_r readdir64_r rewinddir seekdir dirfd closedir __opendir2 scandir scandirat glob ftw nftw fts_open scandir64 scandirat64 glob64 ftw64 "
    "nftw64 fts64_open inotify_add_watch "
    "flock lockf lockf64 fcntl fcntl64 __fcntl "
    "execl execle execlp execv execve execvp execvpe execveat fexecve posix_spawn posix_spawnp "
    "posix_spawn_file_actions_addopen posix_spawn_file_actions_addchdir_np system popen fork vfork "
    "dlopen dlmopen syscall";

bool has(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

// Returns the plain name: mkstemp64 → mkstemp, __open64_2 → open, __lxstat → lstat.
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

// Returns {2, 17} for "GLIBC_2.17", for example, and {99, 0} for a text without a version number.
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
  EXPECT_EQ(shim().needed(), std::vector<std::string>{"libc.so.6"});
}

TEST(ShimLibrary, UsesNothingOfTheCxxRuntime) {
  for (const DynamicSymbol& symbol : shim().symbols()) {
    if (symbol.defined) continue;
    // Every shared library refers to this symbol weakly; libc defines it.
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

TEST(ShimLibrary, CoversEveryEntryPoint) {
  const std::set<std::string> libc_exports = libc().exports();
  std::istringstream names(kFileFunctions);
  std::string name;
  std::size_t count = 0;
  while (names >> name) {
    ++count;
    const bool covered = table().count(name) || left_to_libc().count(name);
    EXPECT_TRUE(covered || !libc_exports.count(name)) << name;
  }
  EXPECT_GT(count, 150u);
}

TEST(ShimLibrary, LeavesOnlyExistingNamesToLibc) {
  const std::set<std::string> libc_exports = libc().exports();
  for (const auto& [name, reason] : left_to_libc()) {
    EXPECT_TRUE(libc_exports.count(name)) << name;
    EXPECT_FALSE(table().count(name)) << name;
    EXPECT_FALSE(reason.empty()) << name;
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
