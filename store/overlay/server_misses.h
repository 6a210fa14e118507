// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "common/result.h"

namespace cacheshim {

// Makes names that other machines have created in the base visible to this machine.
//
// By default, an NFS client caches a failed lookup for 30 s or more. The client asks the server again if the attributes
// of the name's directory have changed, but it also caches these attributes. statx(2) of the directory with
// AT_STATX_FORCE_SYNC renews the attributes; a stat or an open of the name itself does not. Thread-safe.
class ServerMisses {
 public:
  using Clock = std::chrono::steady_clock;
  using Sync = std::function<void(int directory)>;
  // The attributes of a directory are renewed at most once in this period, unless expect() is called.
  static constexpr std::chrono::milliseconds kPeriod{1000};

  // Returns null if no other machine can change the base. `base` must stay open.
  static std::unique_ptr<ServerMisses> make(int base);
  // Tests replace `sync` and `now`.
  explicit ServerMisses(int base, Sync sync = revalidate_attributes,
                        std::function<Clock::time_point()> now = Clock::now);

  // Call after a lookup of `path` has failed with ENOENT. Returns true if the caller should repeat the lookup.
  bool renew(std::string_view path);
  // Call before `directory` is listed.
  void renew_directory(std::string_view directory);
  // Makes the next renew() of `path` ask the server, even if kPeriod has not passed. Call when another machine may have
  // just created `path`.
  void expect(std::string_view path);

 private:
  // Each slot stores the time of the last renewal of a directory, and a part of the hash of the directory's path. If
  // two directories share a slot, their attributes are renewed more often.
  static constexpr std::size_t kSlots = 4096;
  static void revalidate_attributes(int directory);
  std::atomic<std::uint64_t>& slot_of(std::uint64_t hash) { return slots_[hash % kSlots]; }
  bool is_due(std::string_view directory);

  const int base_;
  const Sync sync_;
  const std::function<Clock::time_point()> now_;
  std::array<std::atomic<std::uint64_t>, kSlots> slots_{};
};

}  // namespace cacheshim
