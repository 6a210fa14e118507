// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <atomic>

#include "shim/direct/direct.h"

// Directory streams that opendir(3) has opened on the base.
//
// libc itself reads them, so that every function of libc takes such a stream. A table knows them, for what libc
// cannot know:
//   - The first entry counts only if the view's listing was still the base's when libc had read it. If not, the
//     stream's descriptor is replaced by one of the mount, and libc reads again. rewinddir(3) makes the next
//     entry a first one. A listing is therefore the view's at its first entry, as it is in the mount.
//   - Names that no view shows are left out: reserved ones, and device whiteouts.
//   - dirfd(3) gives a descriptor of the mount, so that what is made, removed or opened by it is the view's.
// Only streams that are open at the same time need room in the table; those without room are the mount's.
namespace cacheshim::direct {

struct Stream {
  // All zero, so that the table takes no room in the library's file.
  constexpr Stream() : none(0) {}

  std::atomic<DIR*> stream{nullptr};
  std::atomic<bool> is_new{false};   // no entry has been read since it was opened or rewound
  std::atomic<bool> is_base{false};  // libc reads the base, and not the mount
  // What dirfd(3) has given, of the mount and ours to close; -1: nothing yet.
  std::atomic<int> descriptor{0};
  union {
    char none;
    OpenedDirectory opened;  // while `stream` is set
  };
};

extern std::atomic<unsigned> stream_count;  // of the table
Stream* find_known_stream(const DIR* stream);

// Null for every stream that libc alone has to do with. Leaves errno alone.
inline Stream* find_stream(const DIR* stream) {
  if (stream_count.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  return find_known_stream(stream);
}

// As the functions of direct.h.
bool try_opendir(const char* rest, DIR*& result);
inline bool opendir(const char* path, DIR*& result) {
  const char* const rest = rest_in_view(path);
  return rest != nullptr && try_opendir(rest, result);
}

// Call when libc has read the first entry, or found none. Returns whether libc has to read it again. Leaves errno
// alone.
bool check_first(Stream& stream);
// Whether no view shows this entry of a directory of the base. Leaves errno alone.
bool is_hidden(int directory, const char* name, unsigned char type);

// call() is libc's readdir(3) of `stream`.
template <class Entry, class Call>
Entry* read_entry(Stream& stream, Call call) {
  Entry* entry = call();
  if (stream.is_new.load(std::memory_order_relaxed) && check_first(stream)) entry = call();
  if (!stream.is_base.load(std::memory_order_relaxed)) return entry;
  while (entry != nullptr && is_hidden(stream.opened.fd, entry->d_name, entry->d_type)) {
    entry = call();
  }
  return entry;
}

// What dirfd(3) is to return.
int descriptor_of(Stream& stream);

// Call before libc closes the stream.
void forget_stream(Stream& stream);

}  // namespace cacheshim::direct
