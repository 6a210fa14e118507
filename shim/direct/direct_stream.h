// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <atomic>

#include "shim/direct/direct.h"

// Directory streams that opendir(3) has opened on the base.
//
// libc itself reads the streams, so that every function of libc accepts them. With a table of these streams, the
// library changes their behavior in three ways:
//   - After libc has read the first entry, the library checks that the view's listing still equals the base's. If not,
//     it replaces the stream's descriptor with one that it opens through the mount, and libc reads again. The library
//     repeats this check for the first entry after rewinddir(3). So a listing shows the view as it was when the first
//     entry was read, as a listing of the mount does.
//   - The library skips names that no view shows: reserved names, and device whiteouts.
//   - dirfd(3) returns a descriptor that was opened through the mount, so that calls with it create, remove or open
//     objects of the view.
// Each open stream takes a slot of the table. If there is no free slot, the mount serves the stream.
namespace cacheshim::direct {

struct Stream {
  // Every initial value is zero, so that the table is in .bss.
  constexpr Stream() : none(0) {}

  std::atomic<DIR*> stream{nullptr};
  std::atomic<bool> is_new{false};   // no entry read since the stream was opened or rewound
  std::atomic<bool> is_base{false};  // libc reads the base instead of the mount
  // The result of dirfd(3), opened through the mount; this library must close it. -1 before the first
  // call of dirfd(3).
  std::atomic<int> descriptor{0};
  union {
    char none;
    OpenedDirectory opened;  // valid while `stream` is set
  };
};

extern std::atomic<unsigned> stream_count;  // the number of streams in the table
Stream* find_known_stream(const DIR* stream);

// Returns null for a stream that was not opened on the base. Leaves errno unchanged.
inline Stream* find_stream(const DIR* stream) {
  if (stream_count.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  return find_known_stream(stream);
}

// Follows the contract of the functions in direct.h. Like opendir(3), not async-signal-safe.
bool try_opendir(const char* rest, DIR*& result);
inline bool opendir(const char* path, DIR*& result) {
  const char* const rest = rest_in_view(path);
  return rest != nullptr && try_opendir(rest, result);
}

// Call after libc has read the first entry or has found none. Returns true if the stream now reads the
// mount, from the beginning: libc must then read the first entry again. Leaves errno unchanged.
bool check_first(Stream& stream);
// Returns true if all views hide this entry of a directory of the base. Leaves errno unchanged.
bool is_hidden(int directory, const char* name, unsigned char type);

// Returns the next entry that the view shows; `call` is libc's readdir(3) of `stream`.
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

// Returns the result of dirfd(3): a descriptor of the mount, which the first call opens if necessary.
// If that open fails, returns the stream's own descriptor.
int descriptor_of(Stream& stream);

// Call before libc closes the stream.
void forget_stream(Stream& stream);

}  // namespace cacheshim::direct
