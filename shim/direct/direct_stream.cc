// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/direct/direct_stream.h"

#include <array>

#include "common/unique_fd.h"
#include "shim/direct/direct_descriptor.h"
#include "shim/errno_guard.h"

namespace cacheshim::direct {

constinit std::atomic<unsigned> stream_count{0};

namespace {

constexpr std::size_t kSets = 16;
constexpr std::size_t kStreamsOfSet = 4;
using Set = std::array<Stream, kStreamsOfSet>;
constinit std::array<Set, kSets> sets;

// The value of Stream::stream while a thread fills the slot.
DIR* reserved() { return reinterpret_cast<DIR*>(&sets); }

Set& set_of(const DIR* stream) {
  const auto address = reinterpret_cast<std::uintptr_t>(stream);
  return sets[(address * 0x9e3779b97f4a7c15) >> 60];
}
static_assert(kSets == 16);

bool add(const OpenedDirectory& opened) {
  for (Stream& place : set_of(opened.stream)) {
    DIR* expected = nullptr;
    if (!place.stream.compare_exchange_strong(expected, reserved(), std::memory_order_acquire)) {
      continue;
    }
    place.is_new.store(true, std::memory_order_relaxed);
    place.is_base.store(true, std::memory_order_relaxed);
    place.descriptor.store(-1, std::memory_order_relaxed);
    place.opened = opened;
    stream_count.fetch_add(1, std::memory_order_relaxed);
    place.stream.store(opened.stream, std::memory_order_release);
    return true;
  }
  return false;
}

bool is_whiteout(int directory, const char* name) {
  const ErrnoGuard errno_guard;
  struct stat st;
  return real::__fxstatat(kStatVersion, directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISCHR(st.st_mode) && st.st_rdev == 0;
}

}  // namespace

Stream* find_known_stream(const DIR* stream) {
  if (stream == nullptr) return nullptr;
  for (Stream& place : set_of(stream)) {
    if (place.stream.load(std::memory_order_acquire) == stream) return &place;
  }
  return nullptr;
}

bool try_opendir(const char* rest, DIR*& result) {
  OpenedDirectory opened;
  if (!try_open_directory(rest, opened)) return false;
  result = opened.stream;
  if (result == nullptr) return true;
  if (!add(opened)) {
    const ErrnoGuard errno_guard;
    (void)real::closedir(opened.stream);
    return false;
  }
  opened.view->count_lookup();
  return true;
}

bool check_first(Stream& stream) {
  if (!stream.is_new.exchange(false, std::memory_order_relaxed)) return false;
  if (!stream.is_base.load(std::memory_order_relaxed) || stream.opened.is_current()) return false;
  const ErrnoGuard errno_guard;
  // leave_base() fails if the directory has been removed or renamed in the view since it was opened: the old path in
  // the view no longer leads to the directory. The stream then continues to read the base's names.
  if (!leave_base(stream.opened.fd)) return false;
  stream.is_base.store(false, std::memory_order_relaxed);
  real::rewinddir.get()(stream.opened.stream);
  return true;
}

bool is_hidden(int directory, const char* name, unsigned char type) {
  if (is_reserved(name)) return true;
  return (type == DT_CHR || type == DT_UNKNOWN) && is_whiteout(directory, name);
}

int descriptor_of(Stream& stream) {
  const int known = stream.descriptor.load(std::memory_order_acquire);
  if (known >= 0) return known;
  if (!stream.is_base.load(std::memory_order_relaxed)) return stream.opened.fd;
  UniqueFd opened = open_in_view(stream.opened.fd);
  // The base's descriptor is safe to return: the base is read-only, so calls with the descriptor cannot
  // change anything (EROFS), and the library's fstat reports the attributes that the view shows.
  if (!opened) return stream.opened.fd;
  int before = -1;
  if (!stream.descriptor.compare_exchange_strong(before, opened.get())) return before;
  return opened.release();
}

void forget_stream(Stream& stream) {
  const int descriptor = stream.descriptor.exchange(-1, std::memory_order_relaxed);
  stream_count.fetch_sub(1, std::memory_order_relaxed);
  stream.stream.store(nullptr, std::memory_order_release);
  const ErrnoGuard errno_guard;
  if (descriptor >= 0) (void)real::close(descriptor);
}

}  // namespace cacheshim::direct
