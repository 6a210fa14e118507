// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/start/command.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "common/unique_fd.h"
#include "shim/runtime.h"

namespace cacheshim::command {
namespace {

#if defined(__x86_64__)
constexpr unsigned kOwnMachine = EM_X86_64;
#else
constexpr unsigned kOwnMachine = EM_AARCH64;
#endif
constexpr unsigned char kOwnClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

bool read_at(int fd, std::size_t offset, void* out, std::size_t size) {
  return ::pread(fd, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

}  // namespace

bool next_candidate(const char*& path_list, const char* file, PathBuffer& out) {
  const char* const end = path_list + std::strcspn(path_list, ":");
  const std::string_view directory(path_list, static_cast<std::size_t>(end - path_list));
  path_list = *end == '\0' ? nullptr : end + 1;
  // An empty directory means the working directory. The result has a slash, so libc does not search PATH again.
  return join_path(out, {directory.empty() ? "." : directory, "/", file}) != 0;
}

const char* path_list() {
  const char* const own = child_environment::find_variable(::environ, "PATH");
  return own != nullptr ? own : "/bin:/usr/bin";
}

bool is_restart_without_library(PathAt at, char* const* environment) {
  if (at.path == nullptr || !child_environment::has_dropped_library(environment)) return false;
  const ErrnoGuard errno_guard;
  struct stat target;
  struct stat own;
  const int flags = *at.path == '\0' ? AT_EMPTY_PATH : 0;
  return real::__fxstatat(kStatVersion, at.dirfd, at.path, &target, flags) == 0 &&
         real::__xstat(kStatVersion, "/proc/self/exe", &own) == 0 && target.st_dev == own.st_dev &&
         target.st_ino == own.st_ino;
}

bool search_is_ours(const char* file, const char* directories, char* const* environment) {
  if (runtime::state.load(std::memory_order_relaxed) == runtime::State::kInactive) return false;
  if (*file == '\0') return false;
  if (child_environment::lacks_ours(environment)) return true;
  while (directories != nullptr) {
    PathBuffer candidate;
    if (!next_candidate(directories, file, candidate)) continue;
    PathBuffer buffer;
    if (!runtime::may_match(candidate.text)) continue;
    const RoutedPath routed = runtime::route({AT_FDCWD, candidate.text}, buffer);
    if (routed.kind != RoutedPath::Kind::kForeign) return true;
  }
  return false;
}

bool read_script_line(const char* path, ScriptLine& out) {
  const UniqueFd fd(real::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return false;
  const ssize_t got = ::read(fd.get(), out.text, sizeof out.text - 1);
  if (got < 3 || out.text[0] != '#' || out.text[1] != '!') return false;
  out.text[got] = '\0';
  out.text[std::strcspn(out.text, "\n")] = '\0';
  char* const interpreter = out.text + 2 + std::strspn(out.text + 2, " \t");
  char* end = interpreter + std::strcspn(interpreter, " \t");
  if (*end != '\0') {
    *end++ = '\0';
    end += std::strspn(end, " \t");
    std::size_t length = std::strlen(end);
    while (length > 0 && (end[length - 1] == ' ' || end[length - 1] == '\t')) --length;
    end[length] = '\0';
    if (length > 0) out.argument = end;
  }
  out.interpreter = interpreter;
  return runtime::may_match(interpreter);
}

Fit fit_of(PathAt at) {
  PathBuffer buffer;
  const char* const path = runtime::may_match(at.path) ? runtime::route(at, buffer).path : at.path;
  if (path == nullptr) return Fit::kLoads;
  // An empty path means the descriptor itself.
  UniqueFd opened;
  if (*path != '\0') opened.reset(real::openat(at.dirfd, path, O_RDONLY | O_CLOEXEC));
  const int fd = *path == '\0' ? at.dirfd : opened.get();
  ElfW(Ehdr) header;
  if (!read_at(fd, 0, &header, sizeof header)) return Fit::kLoads;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return Fit::kLoads;
  if (header.e_ident[EI_CLASS] != kOwnClass || header.e_machine != kOwnMachine) {
    return Fit::kOtherMachine;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part;
    if (!read_at(fd, header.e_phoff + i * sizeof part, &part, sizeof part)) return Fit::kLoads;
    if (part.p_type != PT_INTERP) continue;
    char loader[64] = {};
    const std::size_t size = part.p_filesz < sizeof loader ? part.p_filesz : sizeof loader - 1;
    const bool known = read_at(fd, part.p_offset, loader, size);
    return known && std::strstr(loader, "/ld-linux") == nullptr ? Fit::kOtherLibc : Fit::kLoads;
  }
  return Fit::kLoads;
}

}  // namespace cacheshim::command
