// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <cstring>

#include "shim/direct/direct_call.h"
#include "shim/direct/direct_stream.h"
#include "shim/routing/prefix_swap.h"
#include "shim/routing/routed_call.h"

// Functions that list directories. opendir and scandir try the base first (direct_stream.h); libc's
// internal listings use the mount. opendir, scandir and inotify return only names. glob, ftw and
// nftw return whole paths that begin with their argument: the hook passes the routed path and
// converts the results back to the application's path. fts_open cannot be hooked: its results are
// pointers into one buffer. So fts_open of a default path reads the default directory itself (a
// path under the mount needs no routing).

using cacheshim::call_directly;
using cacheshim::call_routed;
using cacheshim::CallKind;
using cacheshim::PathAt;
using cacheshim::PathBuffer;
using cacheshim::PrefixSwap;
using cacheshim::RoutedPath;
namespace direct = cacheshim::direct;
namespace real = cacheshim::real;
namespace runtime = cacheshim::runtime;

namespace {

// Calls call(path, swap) with the routed path. `swap` converts results back; it is null if the path was not rewritten.
// Unlike call_routed(), does not repeat the call with the default path if the mount is gone, because these calls create
// nothing.
template <class Call>
int call_restored(const char* path, Call call) {
  const PrefixSwap* const none = nullptr;
  if (!runtime::may_match(path)) return call(path, none);
  const int entry_errno = errno;
  PathBuffer buffer;
  const RoutedPath routed = runtime::route({AT_FDCWD, path}, buffer);
  int own_errno = 0;
  // A path under the mount needs no change: the symlinks in the mount's root lead to the same
  // directory, and the results begin with the path as the application wrote it.
  const bool as_it_is = routed.route == cacheshim::kNoRoute || routed.from_length == 0;
  const PrefixSwap swap(path, routed);
  auto once = [&] {
    return as_it_is || routed.path == path ? call(path, none) : call(routed.path, &swap);
  };
  return cacheshim::call_with_own_errno(entry_errno, own_errno, once);
}

bool has_magic(const char* path) { return std::strpbrk(path, "*?[\\{~") != nullptr; }

template <class Real, class Glob>
int glob_restored(Real& real_glob, const char* pattern, int flags,
                  int (*on_error)(const char*, int), Glob* out) {
  return call_restored(pattern, [&](const char* path, const PrefixSwap* swap) {
    if (swap == nullptr || has_magic(runtime::routes().view().data())) {
      return real_glob(pattern, flags, on_error, out);
    }
    const std::size_t skipped = (flags & GLOB_DOOFFS) != 0 ? out->gl_offs : 0;
    const std::size_t before = (flags & GLOB_APPEND) != 0 ? out->gl_pathc : 0;
    const int result = real_glob(path, flags, on_error, out);
    if (result != 0 || out->gl_pathv == nullptr) return result;
    for (std::size_t i = before; i < out->gl_pathc; ++i) {
      char*& entry = out->gl_pathv[skipped + i];
      entry = swap->restore_allocated(entry);
    }
    return result;
  });
}

// The current walk of this thread; a callback may start another one.
template <class Function>
struct Walk {
  Function function = nullptr;
  const PrefixSwap* swap = nullptr;
};
template <class Function>
thread_local Walk<Function> current_walk;

template <class Stat>
int visit(const char* path, const Stat* status, int kind) {
  const auto walk = current_walk<int (*)(const char*, const Stat*, int)>;
  PathBuffer buffer;
  return walk.function(walk.swap->restore(path, buffer), status, kind);
}

template <class Stat>
int visit(const char* path, const Stat* status, int kind, FTW* place) {
  const auto walk = current_walk<int (*)(const char*, const Stat*, int, FTW*)>;
  PathBuffer buffer;
  const char* const restored = walk.swap->restore(path, buffer);
  FTW own = *place;
  if (restored != path) own.base += static_cast<int>(walk.swap->growth());
  return walk.function(restored, status, kind, &own);
}

template <class Function, class Call>
int walk_restored(const char* path, Function function, Call call) {
  return call_restored(path, [&](const char* routed, const PrefixSwap* swap) {
    if (swap == nullptr || function == nullptr) return call(path, function);
    const auto outer = current_walk<Function>;
    current_walk<Function> = {function, swap};
    const Function visitor = visit;
    const int result = call(routed, visitor);
    current_walk<Function> = outer;
    return result;
  });
}

template <class Entry, auto& real_readdir>
Entry* read_stream(DIR* stream) {
  direct::Stream* const known = direct::find_stream(stream);
  if (known == nullptr) [[likely]]
    return real_readdir(stream);
  return direct::read_entry<Entry>(*known, [=] { return real_readdir(stream); });
}

template <class Entry, auto& real_readdir>
int read_stream_into(DIR* stream, Entry* entry, Entry** result) {
  direct::Stream* const known = direct::find_stream(stream);
  if (known == nullptr) [[likely]]
    return real_readdir(stream, entry, result);
  int error = 0;
  (void)direct::read_entry<Entry>(*known, [&]() -> Entry* {
    error = real_readdir(stream, entry, result);
    return error == 0 ? *result : nullptr;
  });
  return error;
}

// Makes the next entry count as the first one of a listing (direct_stream.h).
void note_rewound(DIR* stream) {
  direct::Stream* const known = direct::find_stream(stream);
  if (known != nullptr) known->is_new.store(true, std::memory_order_relaxed);
}

// The current scan of this thread; a filter may start another one.
template <class Entry>
struct Scan {
  int (*filter)(const Entry*) = nullptr;
  int directory = -1;
};
template <class Entry>
thread_local Scan<Entry> current_scan;

template <class Entry>
int keep(const Entry* entry) {
  const auto scan = current_scan<Entry>;
  if (direct::is_hidden(scan.directory, entry->d_name, entry->d_type)) return 0;
  return scan.filter == nullptr ? 1 : scan.filter(entry);
}

// Lists the base's directory, if its listing equals the view's when the directory is opened. Returns false if the mount
// must answer.
template <auto& real_scandirat, class Entry>
bool scan_directly(const char* path, Entry*** out, int (*filter)(const Entry*),
                   int (*compare)(const Entry**, const Entry**), int& result) {
  const char* const rest = direct::rest_in_view(path);
  direct::OpenedDirectory opened;
  if (rest == nullptr || !direct::try_open_directory(rest, opened)) return false;
  result = -1;
  if (opened.stream == nullptr) return true;
  opened.view->count_lookup();
  const auto outer = current_scan<Entry>;
  current_scan<Entry> = {filter, opened.fd};
  result = real_scandirat(opened.fd, ".", out, keep<Entry>, compare);
  current_scan<Entry> = outer;
  const cacheshim::ErrnoGuard errno_guard;
  (void)real::closedir(opened.stream);
  return true;
}

template <auto& real_scandirat, class Entry, class Call>
int scan(PathAt at, Entry*** out, int (*filter)(const Entry*),
         int (*compare)(const Entry**, const Entry**), Call call) {
  const auto try_direct = [=](const char* p, int& result) {
    return scan_directly<real_scandirat>(p, out, filter, compare, result);
  };
  return call_directly(at, CallKind::kLookup, try_direct, call);
}

}  // namespace

CACHESHIM_EXPORT DIR* opendir(const char* path) {
  return call_directly({AT_FDCWD, path}, CallKind::kLookup, direct::opendir,
                       [](const char* p) { return real::opendir(p); });
}

CACHESHIM_EXPORT dirent* readdir(DIR* stream) { return read_stream<dirent, real::readdir>(stream); }

CACHESHIM_EXPORT dirent64* readdir64(DIR* stream) {
  return read_stream<dirent64, real::readdir64>(stream);
}

CACHESHIM_EXPORT int readdir_r(DIR* stream, dirent* entry, dirent** result) {
  return read_stream_into<dirent, real::readdir_r>(stream, entry, result);
}

CACHESHIM_EXPORT int readdir64_r(DIR* stream, dirent64* entry, dirent64** result) {
  return read_stream_into<dirent64, real::readdir64_r>(stream, entry, result);
}

CACHESHIM_EXPORT void rewinddir(DIR* stream) noexcept {
  note_rewound(stream);
  real::rewinddir.get()(stream);
}

CACHESHIM_EXPORT void seekdir(DIR* stream, long place) noexcept {
  if (place == 0) note_rewound(stream);
  real::seekdir.get()(stream, place);
}

CACHESHIM_EXPORT int dirfd(DIR* stream) noexcept {
  direct::Stream* const known = direct::find_stream(stream);
  return known == nullptr ? real::dirfd(stream) : direct::descriptor_of(*known);
}

CACHESHIM_EXPORT int closedir(DIR* stream) {
  direct::Stream* const known = direct::find_stream(stream);
  if (known != nullptr) direct::forget_stream(*known);
  return real::closedir(stream);
}

CACHESHIM_EXPORT int scandir(const char* path, dirent*** out, int (*filter)(const dirent*),
                             int (*compare)(const dirent**, const dirent**)) {
  return scan<real::scandirat>({AT_FDCWD, path}, out, filter, compare, [=](const char* p) {
    return real::scandir(p, out, filter, compare);
  });
}

CACHESHIM_EXPORT int scandir64(const char* path, dirent64*** out, int (*filter)(const dirent64*),
                               int (*compare)(const dirent64**, const dirent64**)) {
  return scan<real::scandirat64>({AT_FDCWD, path}, out, filter, compare, [=](const char* p) {
    return real::scandir64(p, out, filter, compare);
  });
}

CACHESHIM_EXPORT int scandirat(int dirfd, const char* path, dirent*** out,
                               int (*filter)(const dirent*),
                               int (*compare)(const dirent**, const dirent**)) {
  return scan<real::scandirat>({dirfd, path}, out, filter, compare, [=](const char* p) {
    return real::scandirat(dirfd, p, out, filter, compare);
  });
}

CACHESHIM_EXPORT int scandirat64(int dirfd, const char* path, dirent64*** out,
                                 int (*filter)(const dirent64*),
                                 int (*compare)(const dirent64**, const dirent64**)) {
  return scan<real::scandirat64>({dirfd, path}, out, filter, compare, [=](const char* p) {
    return real::scandirat64(dirfd, p, out, filter, compare);
  });
}

CACHESHIM_EXPORT int glob(const char* pattern, int flags, int (*on_error)(const char*, int),
                          glob_t* out) {
  return glob_restored(real::glob, pattern, flags, on_error, out);
}

CACHESHIM_EXPORT int glob64(const char* pattern, int flags, int (*on_error)(const char*, int),
                            glob64_t* out) {
  return glob_restored(real::glob64, pattern, flags, on_error, out);
}

CACHESHIM_EXPORT int ftw(const char* path, __ftw_func_t function, int descriptors) {
  return walk_restored(path, function,
                       [&](const char* p, __ftw_func_t f) { return real::ftw(p, f, descriptors); });
}

CACHESHIM_EXPORT int ftw64(const char* path, __ftw64_func_t function, int descriptors) {
  return walk_restored(path, function, [&](const char* p, __ftw64_func_t f) {
    return real::ftw64(p, f, descriptors);
  });
}

CACHESHIM_EXPORT int nftw(const char* path, __nftw_func_t function, int descriptors, int flags) {
  return walk_restored(path, function, [&](const char* p, __nftw_func_t f) {
    return real::nftw(p, f, descriptors, flags);
  });
}

CACHESHIM_EXPORT int nftw64(const char* path, __nftw64_func_t function, int descriptors,
                            int flags) {
  return walk_restored(path, function, [&](const char* p, __nftw64_func_t f) {
    return real::nftw64(p, f, descriptors, flags);
  });
}

CACHESHIM_EXPORT int inotify_add_watch(int fd, const char* path, std::uint32_t mask) noexcept {
  return call_routed({AT_FDCWD, path}, CallKind::kLookup,
                     [=](const char* p) { return real::inotify_add_watch(fd, p, mask); });
}
