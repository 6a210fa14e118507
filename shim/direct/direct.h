// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <cerrno>
#include <cstring>

#include "shim/direct/direct_view.h"
#include "shim/runtime.h"

// Answers calls from the base, without a request to the daemon. A hook calls these functions before libc's function,
// with the same path. The shadow filter (common/direct_filter.h) shows whether the view would give the base's answer.
//
// Each function returns true if it has answered: `result`, errno and the output arguments then have the values that
// libc's function would set for this path of the mount. If it returns false, errno is unchanged, but the output buffers
// may have been overwritten. The mount answers all unusual cases: calls that follow a symlink; paths with ".."; stat
// and access of devices, FIFOs and sockets; and stat, access and listings of objects that not every user may read. Each
// function makes at most four system calls besides those that map the view and open the base's directory. The functions
// are async-signal-safe, except try_fopen() and try_open_directory(), which allocate memory as libc's functions do.
//
// A descriptor of a directly opened file continues to show the base's data after copy-up, as overlayfs's read-only
// descriptors do. fstat of such a descriptor shows the view's attributes (hooks_fstat.cc).
namespace cacheshim::direct {

// Returns the part of `path` after MOUNT/ or, for the view of this process's job, after
// MOUNT/.jobs/JOB/. Compares only the text, so the part may contain "..", which the functions below
// leave to the mount. Returns null for all other paths, for null, and if the library is not active.
inline const char* rest_in_view(const char* path) {
  const std::string_view mount = runtime::routes().mount();
  if (path == nullptr || path[0] != '/' || mount.empty() || path[1] != mount.data()[1] ||
      std::strncmp(path, mount.data(), mount.size()) != 0 || path[mount.size()] != '/' ||
      runtime::state.load(std::memory_order_relaxed) != runtime::State::kActive) {
    return nullptr;
  }
  const char* const rest = path + mount.size() + 1;
  if (*rest != '.') return rest;
  const std::size_t own_length = runtime::routes().view().size() - mount.size();  // the length of "/.jobs/JOB"
  const char* const own = runtime::routes().view().data() + mount.size() + 1;
  if (own_length == 0 || std::strncmp(rest, own, own_length - 1) != 0) return nullptr;
  return rest[own_length - 1] == '/' ? rest + own_length : nullptr;
}

// The functions below require that `rest` is a non-null result of rest_in_view().
bool try_open(const char* rest, int flags, int& result);
bool try_fopen(const char* rest, const char* mode, FILE*& result);
bool try_stat(const char* rest, int flags, struct stat* out, int& result);
bool try_statx(const char* rest, int flags, unsigned mask, struct statx* out, int& result);
bool try_access(const char* rest, int mode, int flags, int& result);
bool try_readlink(const char* rest, char* out, std::size_t capacity, ssize_t& result);
// Returns true if the view shows an object of the base by this name; false if it does not, or if
// only the mount can tell. Leaves errno unchanged.
bool has_name(const char* rest);

// A directory of the base that was opened for listing. When it was opened, the view's listing
// equaled the base's.
struct OpenedDirectory {
  DIR* stream = nullptr;  // null if there is no such directory; errno is then ENOENT
  int fd = -1;            // the stream's descriptor
  const View* view = nullptr;
  ShadowProbes probes;

  // Returns true if the part of the listing that has been read so far equals the view's.
  bool is_current() const { return view->is_alive() && !probes.may_be_shadowed(); }
};
// Returns true if the base answers; `result` is then set. A caller that uses `result.stream` must call
// View::count_lookup(). If the stream is null, this function has already counted the lookup.
bool try_open_directory(const char* rest, OpenedDirectory& result);

// Whether `name` is reserved (store/sys/whiteout.h). No view shows a reserved name, and no process
// can create one.
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
// Returns false for flags other than AT_SYMLINK_NOFOLLOW, so that the mount answers.
template <class Stat>
bool stat(const char* path, int flags, Stat* out, int& result) {
  static_assert(sizeof(Stat) == sizeof(struct stat));  // struct stat64 has the same layout
  const char* const rest = rest_in_view(path);
  // `out` may be an invalid pointer, so the kernel must be the first to write to it. The kernel then returns EFAULT,
  // whereas a write by this function would crash the process.
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

// Converts the base's attributes of a file into those that the view shows, as View::show() of the
// daemon does.
void show_as_view(const View& view, struct stat& st);
void show_as_view(const View& view, struct statx& st);

}  // namespace cacheshim::direct
