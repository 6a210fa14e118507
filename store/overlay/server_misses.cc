// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/server_misses.h"

#include <fcntl.h>

#include <string>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "store/sys/file_system.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

std::uint64_t hash_of(std::string_view directory) {
  return XXH3_64bits(directory.data(), directory.size());
}

constexpr std::uint64_t kTimeMask = 0xffffffff;  // a slot's low half: milliseconds, which wrap after 49 days

}  // namespace

std::unique_ptr<ServerMisses> ServerMisses::make(int base) {
  return is_local_file_system(base) ? nullptr : std::make_unique<ServerMisses>(base);
}

ServerMisses::ServerMisses(int base, Sync sync, std::function<Clock::time_point()> now)
    : base_(base), sync_(std::move(sync)), now_(std::move(now)) {}

void ServerMisses::revalidate_attributes(int directory) {
  (void)sys::revalidate_attributes(directory);  // if this fails, the miss stands
}

// Whether the directory's attributes were last renewed at least kPeriod ago. If so, records that they are renewed now.
bool ServerMisses::is_due(std::string_view directory) {
  const std::uint64_t hash = hash_of(directory);
  const auto since_start =
      std::chrono::duration_cast<std::chrono::milliseconds>(now_().time_since_epoch());
  const std::uint64_t now = static_cast<std::uint64_t>(since_start.count()) & kTimeMask;
  const std::uint64_t mark = hash & ~kTimeMask;
  std::atomic<std::uint64_t>& slot = slot_of(hash);
  const std::uint64_t before = slot.load(std::memory_order_relaxed);
  const std::uint64_t age = (now - before) & kTimeMask;
  const bool is_fresh = (before & ~kTimeMask) == mark && before != 0 &&
                        age < static_cast<std::uint64_t>(kPeriod.count());
  if (is_fresh) return false;
  slot.store(mark | now, std::memory_order_relaxed);
  return true;
}

// Renews the attributes of the nearest existing directory above the name. This is enough: if the server now has the
// next directory on the path, the kernel has not cached any names in that directory yet.
bool ServerMisses::renew(std::string_view path) {
  while (!path.empty()) {
    path = parent_path(path);
    const auto directory = sys::open_beneath(base_, path, O_PATH | O_DIRECTORY);
    if (directory.failed_with(ENOENT)) continue;
    if (!directory || !is_due(path)) return false;
    sync_(directory->get());
    return true;
  }
  return false;
}

void ServerMisses::renew_directory(std::string_view directory) {
  const auto opened = sys::open_beneath(base_, directory, O_PATH | O_DIRECTORY);
  if (opened && is_due(directory)) sync_(opened->get());
}

void ServerMisses::expect(std::string_view path) {
  while (!path.empty()) {
    path = parent_path(path);
    slot_of(hash_of(path)).store(0, std::memory_order_relaxed);
  }
}

}  // namespace cacheshim
