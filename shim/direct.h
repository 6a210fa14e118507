// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <cerrno>
#include <cstring>

#include "shim/direct_view.h"
#include "shim/runtime.h"

// Answers from the base, without a word to the daemon: what a hook asks before it asks the mount, with
// the path that it would give to libc. common/direct_filter.h says why the answer is the view's.
//
// Each returns true where it has answered: `result`, errno and what is behind the pointers are then as
// libc would have left them for this path of the mount. Otherwise errno is what it was, and nothing has
// happened. What is odd in any way is left to the mount: symlinks, whatever is neither a file nor a
// folder, files that not everybody may read, paths with "..". All are async-signal-safe and make no
// more than three system calls.
//
// A descriptor of a directly opened file keeps the base's bytes when the file is copied up, as overlayfs'
// read-only descriptors do. fstat shows it as the view's (hooks_fstat.cc).
namespace cacheshim::direct {

// Whether a path is one of this process' own view, spelt so. Null is not.
inline bool concerns(const char* path) {
  const std::string_view view = runtime::router.view();
  return path != nullptr && path[0] == '/' && !view.empty() && path[1] == view.data()[1] &&
         std::strncmp(path, view.data(), view.size()) == 0 && path[view.size()] == '/' &&
         runtime::state.load(std::memory_order_relaxed) == runtime::State::kActive;
}

bool try_open(const char* path, int flags, int& result);
bool try_fopen(const char* path, const char* mode, FILE*& result);
bool try_stat(const char* path, int flags, struct stat& out, int& result);
bool try_statx(const char* path, int flags, unsigned mask, struct statx& out, int& result);
bool try_access(const char* path, int mode, int flags, int& result);
bool try_readlink(const char* path, char* out, std::size_t capacity, ssize_t& result);
// Only that something has the name.
bool try_mkdir(const char* path, int& result);

inline bool open(const char* path, int flags, int& result) {
  constexpr int kOthers = O_ACCMODE | O_CREAT | O_TRUNC | O_DIRECTORY | O_PATH | O_TMPFILE;
  return (flags & kOthers) == O_RDONLY && concerns(path) && try_open(path, flags, result);
}
inline bool fopen(const char* path, const char* mode, FILE*& result) {
  return mode != nullptr && *mode == 'r' && concerns(path) && try_fopen(path, mode, result);
}
// `flags`: 0 or AT_SYMLINK_NOFOLLOW, else the mount answers.
template <class Stat>
bool stat(const char* path, int flags, Stat* out, int& result) {
  static_assert(sizeof(Stat) == sizeof(struct stat));  // stat64 is the same
  struct stat found;
  if (out == nullptr || !concerns(path) || !try_stat(path, flags, found, result)) return false;
  if (result == 0) std::memcpy(static_cast<void*>(out), &found, sizeof found);
  return true;
}
inline bool statx(const char* path, int flags, unsigned mask, struct statx* out, int& result) {
  return out != nullptr && concerns(path) && try_statx(path, flags, mask, *out, result);
}
inline bool access(const char* path, int mode, int flags, int& result) {
  return concerns(path) && try_access(path, mode, flags, result);
}
inline bool readlink(const char* path, char* out, std::size_t capacity, ssize_t& result) {
  return concerns(path) && try_readlink(path, out, capacity, result);
}
inline bool mkdir(const char* path, int& result) {
  return concerns(path) && try_mkdir(path, result);
}

// Turns what the base says of a file into what the view shows, as View::show() of the daemon does.
void show_as_view(const View& view, struct stat& st);
void show_as_view(const View& view, struct statx& st);

}  // namespace cacheshim::direct
