// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <cerrno>
#include <cstring>

#include "shim/direct/direct_view.h"
#include "shim/runtime.h"

// Answers from the base, without a word to the daemon: what a hook asks before it asks the mount,
// with the path that it would give to libc. common/direct_filter.h says why the answer is the
// view's.
//
// Each returns true where it has answered: `result`, errno and what is behind the pointers are then
// as libc would have left them for this path of the mount. Otherwise errno is what it was, and
// nothing has happened but that the memory for an answer may have been written to. What is odd in
// any way is left to the mount: symlinks, whatever is neither a file nor a directory, files that
// not everybody may read, paths with "..". All are async-signal-safe and make no more than three
// system calls.
//
// A descriptor of a directly opened file keeps the base's bytes when the file is copied up, as
// overlayfs' read-only descriptors do. fstat shows it as the view's (hooks_fstat.cc).
namespace cacheshim::direct {

// What follows the view in a path that leads there by way of the mount, spelt without detours
// (MOUNT/triton/x, or MOUNT/.jobs/JOB/triton/x of the own job); else null, as for null.
inline const char* rest_in_view(const char* path) {
  const std::string_view mount = runtime::router.mount();
  if (path == nullptr || path[0] != '/' || mount.empty() || path[1] != mount.data()[1] ||
      std::strncmp(path, mount.data(), mount.size()) != 0 || path[mount.size()] != '/' ||
      runtime::state.load(std::memory_order_relaxed) != runtime::State::kActive) {
    return nullptr;
  }
  const char* const rest = path + mount.size() + 1;
  if (*rest != '.') return rest;
  const std::size_t own_length = runtime::router.view().size() - mount.size();  // "/.jobs/JOB"
  const char* const own = runtime::router.view().data() + mount.size() + 1;
  if (own_length == 0 || std::strncmp(rest, own, own_length - 1) != 0) return nullptr;
  return rest[own_length - 1] == '/' ? rest + own_length : nullptr;
}

// `rest`: what rest_in_view() has returned.
bool try_open(const char* rest, int flags, int& result);
bool try_fopen(const char* rest, const char* mode, FILE*& result);
bool try_stat(const char* rest, int flags, struct stat* out, int& result);
bool try_statx(const char* rest, int flags, unsigned mask, struct statx* out, int& result);
bool try_access(const char* rest, int mode, int flags, int& result);
bool try_readlink(const char* rest, char* out, std::size_t capacity, ssize_t& result);
// Whether the base has something of this name, and the view shows it. Leaves errno alone.
bool has_name(const char* rest);

// A directory of the base that the view listed in the same way when it was opened.
struct OpenedDirectory {
  DIR* stream = nullptr;  // null: there is no such name, and errno says so
  int fd = -1;            // of the stream
  const View* view = nullptr;
  ShadowProbes probes;

  // Whether what has been read of it by now is the view's listing still.
  bool is_current() const { return view->is_alive() && !probes.may_be_shadowed(); }
};
// The caller counts the use of the descriptor (View::count_look()).
bool try_open_directory(const char* rest, OpenedDirectory& result);

// Whether no view shows, or makes, a name that begins so (store/sys/whiteout.h).
inline bool is_reserved(const char* name) {
  return name[0] == '.' && name[1] == 'w' && name[2] == 'h' && name[3] == '.';
}

inline bool open(const char* path, int flags, int& result) {
  constexpr int kOthers = O_ACCMODE | O_CREAT | O_TRUNC | O_DIRECTORY | O_PATH | O_TMPFILE;
  if ((flags & kOthers) != O_RDONLY) return false;
  const char* const rest = rest_in_view(path);
  return rest != nullptr && try_open(rest, flags, result);
}
inline bool fopen(const char* path, const char* mode, FILE*& result) {
  const char* const rest = rest_in_view(path);
  return rest != nullptr && mode != nullptr && *mode == 'r' && try_fopen(rest, mode, result);
}
// `flags`: 0 or AT_SYMLINK_NOFOLLOW, else the mount answers.
template <class Stat>
bool stat(const char* path, int flags, Stat* out, int& result) {
  static_assert(sizeof(Stat) == sizeof(struct stat));  // stat64 is the same
  const char* const rest = rest_in_view(path);
  // The kernel alone writes to a pointer that may lead nowhere.
  auto* const found = static_cast<struct stat*>(static_cast<void*>(out));
  return rest != nullptr && try_stat(rest, flags, found, result);
}
inline bool statx(const char* path, int flags, unsigned mask, struct statx* out, int& result) {
  const char* const rest = rest_in_view(path);
  return rest != nullptr && try_statx(rest, flags, mask, out, result);
}
inline bool access(const char* path, int mode, int flags, int& result) {
  const char* const rest = rest_in_view(path);
  return rest != nullptr && try_access(rest, mode, flags, result);
}
inline bool readlink(const char* path, char* out, std::size_t capacity, ssize_t& result) {
  const char* const rest = rest_in_view(path);
  return rest != nullptr && try_readlink(rest, out, capacity, result);
}
inline bool mkdir(const char* path, int& result) {
  const char* const rest = rest_in_view(path);
  if (rest == nullptr || !has_name(rest)) return false;
  errno = EEXIST;
  result = -1;
  return true;
}

// Turns what the base says of a file into what the view shows, as View::show() of the daemon does.
void show_as_view(const View& view, struct stat& st);
void show_as_view(const View& view, struct statx& st);

}  // namespace cacheshim::direct
