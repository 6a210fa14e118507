// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <algorithm>
#include <cstring>

#include "shim/direct/direct_call.h"
#include "shim/hooks/path_spelling.h"
#include "shim/routing/prefix_swap.h"
#include "shim/routing/routed_call.h"

// Functions that return a path, and functions that change the working directory. The hook calls
// libc first and converts the result into the application's path only if the result is in the view.
// For a name outside all caches, this check is only one comparison. Because libc is called first,
// invalid pointers fail as in libc.

using cacheshim::call_routed;
using cacheshim::CallKind;
using cacheshim::ErrnoGuard;
using cacheshim::PathBuffer;
using cacheshim::RoutedPath;
namespace direct = cacheshim::direct;
namespace path_spelling = cacheshim::path_spelling;
namespace real = cacheshim::real;
namespace runtime = cacheshim::runtime;

namespace {

bool is_active() {
  return runtime::state.load(std::memory_order_relaxed) != runtime::State::kInactive;
}

// Whether `path` is in /proc. A symlink there contains the kernel's name of a file; any other symlink contains the text
// that its creator wrote.
bool is_in_proc(int dirfd, const char* path) {
  if (path[0] == '/') return std::strncmp(path, "/proc/", sizeof "/proc/" - 1) == 0;
  struct statfs system;
  const int got = dirfd == AT_FDCWD ? real::statfs(".", &system) : ::fstatfs(dirfd, &system);
  constexpr long kProcMagic = 0x9fa0;
  return got == 0 && system.f_type == kProcMagic;
}

// Whether a text that may be truncated can begin with `prefix`.
bool may_begin_with(std::string_view text, std::string_view prefix) {
  return std::memcmp(text.data(), prefix.data(), std::min(text.size(), prefix.size())) == 0;
}

// If the symlink at `path` is in /proc, converts its target to the application's path. `out`, of `size`
// bytes, holds the first `got` bytes of the target. Returns the new number of bytes.
ssize_t restore_link(int dirfd, const char* path, char* out, std::size_t size, ssize_t got) {
  const std::string_view text(out, static_cast<std::size_t>(got));
  const direct::View* const view = direct::last_view();
  const bool may_be_base = view != nullptr && may_begin_with(text, {view->base, view->base_length});
  if (!is_active() || !(may_be_base || may_begin_with(text, runtime::routes().mount()))) return got;
  const ErrnoGuard errno_guard;
  PathBuffer whole;
  PathBuffer restored;
  if (!is_in_proc(dirfd, path)) return got;
  const ssize_t length = real::readlinkat(dirfd, path, whole.text, sizeof whole.text);
  if (length <= 0 || static_cast<std::size_t>(length) >= sizeof whole.text) return got;
  whole.text[length] = '\0';
  const char* const name = std::strcmp(path, "/proc/self/cwd") == 0
                               ? path_spelling::working_directory(whole.text, restored)
                               : path_spelling::name(whole.text, restored);
  if (name == whole.text) return got;
  const std::size_t fits = std::min(std::strlen(name), size);
  std::memcpy(out, name, fits);
  return static_cast<ssize_t>(fits);
}

template <class Call>
ssize_t read_link(int dirfd, const char* path, char* out, std::size_t size, Call call) {
  const ssize_t got = cacheshim::call_directly(
      {dirfd, path}, CallKind::kLookup,
      [=](const char* p, ssize_t& length) { return direct::readlink(p, out, size, length); }, call);
  return got <= 0 ? got : restore_link(dirfd, path, out, size, got);
}

// Replaces the path in `resolved` with the application's path, and returns the string. Reallocates
// the string only if `allocated`.
char* restore_resolved(char* resolved, const RoutedPath& routed, bool allocated) {
  const ErrnoGuard errno_guard;
  PathBuffer restored;
  const char* const name = path_spelling::name_as(resolved, routed, restored);
  if (name == resolved) return resolved;
  const std::size_t size = std::strlen(name) + 1;
  if (allocated) {
    // libc allocated the memory for the application, which frees it.
    char* const larger = static_cast<char*>(std::realloc(resolved, size));
    if (larger == nullptr) return resolved;
    resolved = larger;
  }
  std::memcpy(resolved, name, size);
  return resolved;
}

// Returns the route of the path. The result's member `path` is null, because the routed path is in a local buffer.
RoutedPath route_of(const char* path) {
  RoutedPath routed;
  if (!runtime::may_match(path)) return routed;
  const ErrnoGuard errno_guard;
  PathBuffer buffer;
  routed = runtime::route({AT_FDCWD, path}, buffer);
  routed.path = nullptr;
  return routed;
}

template <class Call>
char* resolve(const char* path, char* out, Call call) {
  if (!is_active() || path == nullptr) return call(path);
  const RoutedPath routed = route_of(path);
  char* const resolved = call_routed({AT_FDCWD, path}, CallKind::kLookup, call);
  if (resolved != nullptr) return restore_resolved(resolved, routed, out == nullptr);
  // On these errors, `out` contains the path that is missing or inaccessible.
  const bool partial = errno == ENOENT || errno == EACCES;
  if (out != nullptr && partial && routed.kind == RoutedPath::Kind::kRewritten) {
    (void)restore_resolved(out, routed, false);
  }
  return nullptr;
}

char* fail(int error) {
  errno = error;
  return nullptr;
}

bool may_be_in_view(const char* directory) {
  const std::string_view mount = runtime::routes().mount();
  return std::strncmp(directory, mount.data(), mount.size()) == 0;
}

template <class Call>
[[gnu::noinline]] char* get_directory_slowly(char* out, std::size_t size, Call& call) {
  const int entry_errno = errno;
  PathBuffer kernel;
  PathBuffer restored;
  const bool known = real::getcwd(kernel.text, sizeof kernel.text) != nullptr;
  const char* const name =
      known ? path_spelling::working_directory(kernel.text, restored) : kernel.text;
  errno = entry_errno;
  if (!known || name == kernel.text) return call();
  const std::size_t needed = std::strlen(name) + 1;
  if (size == 0 && out != nullptr) return fail(EINVAL);
  if (size != 0 && size < needed) return fail(ERANGE);
  if (out == nullptr) {
    char* const allocated = real::getcwd(nullptr, std::size_t{0});
    if (allocated == nullptr) return nullptr;
    out = static_cast<char*>(std::realloc(allocated, std::max(size, needed)));
    if (out == nullptr) return allocated;  // the path in the view is also correct
  }
  std::memcpy(out, name, needed);
  return out;
}

// Calls `call`, which is libc's getcwd, and converts the result; `out` and `size` are getcwd's
// arguments. The kernel's name may not fit although the application's name does.
template <class Call>
char* get_directory(char* out, std::size_t size, Call call) {
  if (!is_active()) return call();
  if (out == nullptr || size == 0) return get_directory_slowly(out, size, call);
  const int entry_errno = errno;
  char* const directory = call();
  if (directory != nullptr ? !may_be_in_view(directory) : errno != ERANGE) return directory;
  errno = entry_errno;
  return get_directory_slowly(out, size, call);
}

// Notes the spelling of the path that was passed to chdir, so that getcwd uses this spelling. A relative foreign path
// leaves the noted spelling unchanged. An absolute foreign path may have led to the mount through a symlink, so it
// counts as a path under the mount.
void note_directory(const char* path, RoutedPath routed) {
  if (*path != '/' && routed.kind == RoutedPath::Kind::kForeign) return;
  if (routed.kind == RoutedPath::Kind::kForeign) routed.kind = RoutedPath::Kind::kUnchanged;
  path_spelling::note_directory(routed);
}

}  // namespace

CACHESHIM_EXPORT ssize_t readlink(const char* path, char* out, size_t size) noexcept {
  return read_link(AT_FDCWD, path, out, size,
                   [=](const char* p) { return real::readlink(p, out, size); });
}

CACHESHIM_EXPORT ssize_t readlinkat(int dirfd, const char* path, char* out, size_t size) noexcept {
  return read_link(dirfd, path, out, size,
                   [=](const char* p) { return real::readlinkat(dirfd, p, out, size); });
}

CACHESHIM_EXPORT ssize_t __readlink_chk(const char* path, char* out, size_t size,
                                        size_t room) noexcept {
  if (room < size) return real::__readlink_chk(path, out, size, room);  // this call aborts the program
  return read_link(AT_FDCWD, path, out, size,
                   [=](const char* p) { return real::__readlink_chk(p, out, size, room); });
}

CACHESHIM_EXPORT ssize_t __readlinkat_chk(int dirfd, const char* path, char* out, size_t size,
                                          size_t room) noexcept {
  // This call aborts the program.
  if (room < size) return real::__readlinkat_chk(dirfd, path, out, size, room);
  return read_link(dirfd, path, out, size, [=](const char* p) {
    return real::__readlinkat_chk(dirfd, p, out, size, room);
  });
}

CACHESHIM_EXPORT char* realpath(const char* path, char* out) noexcept {
  return resolve(path, out, [=](const char* p) { return real::realpath(p, out); });
}

CACHESHIM_EXPORT char* __realpath_chk(const char* path, char* out, size_t room) noexcept {
  return resolve(path, out, [=](const char* p) { return real::__realpath_chk(p, out, room); });
}

CACHESHIM_EXPORT char* canonicalize_file_name(const char* path) noexcept {
  return resolve(path, nullptr, [](const char* p) { return real::canonicalize_file_name(p); });
}

CACHESHIM_EXPORT int chdir(const char* path) noexcept {
  const RoutedPath routed = route_of(path);
  const int result = call_routed({AT_FDCWD, path}, CallKind::kLookup,
                                 [](const char* p) { return real::chdir(p); });
  if (result == 0 && is_active()) note_directory(path, routed);
  return result;
}

CACHESHIM_EXPORT int fchdir(int fd) noexcept {
  const int result = real::fchdir(fd);
  if (result == 0 && is_active()) path_spelling::note_directory({});
  return result;
}

CACHESHIM_EXPORT char* getcwd(char* out, size_t size) noexcept {
  return get_directory(out, size, [&] { return real::getcwd(out, size); });
}

CACHESHIM_EXPORT char* __getcwd_chk(char* out, size_t size, size_t room) noexcept {
  if (room < size) return real::__getcwd_chk(out, size, room);  // this call aborts the program
  return get_directory(out, size, [&] { return real::__getcwd_chk(out, size, room); });
}

CACHESHIM_EXPORT char* getwd(char* out) noexcept {
  if (out == nullptr) return real::getwd(out);
  return get_directory(out, PATH_MAX, [&] { return real::getwd(out); });
}

CACHESHIM_EXPORT char* __getwd_chk(char* out, size_t room) noexcept {
  if (out == nullptr || room < PATH_MAX) return real::__getwd_chk(out, room);
  return get_directory(out, PATH_MAX, [&] { return real::__getwd_chk(out, room); });
}

CACHESHIM_EXPORT char* get_current_dir_name() noexcept {
  return get_directory(nullptr, 0, [] { return real::get_current_dir_name(); });
}
