// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <unordered_map>
#include <vector>

namespace cacheshim {

// The users whose builders have made processes of other users wait in vain: the builder kept the lease until the
// waiters' timeout, or lost it without publishing the entry. Once such waits add up to `limit` for a user, the user is
// excluded for kPeriod: only processes of the builder's own job then wait for that user's builds. Otherwise a process
// could look up names that it never builds, and delay all other processes by the timeout for each name.
//
// If the user publishes an entry during the exclusion, the exclusion ends: the user does build, only slowly. This works
// only once per kPeriod, because an attacker can publish too. The charges are forgotten once kPeriod has passed without
// another charge. Not thread-safe.
class FruitlessUsers {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  static constexpr std::chrono::hours kPeriod{1};

  explicit FruitlessUsers(Duration limit) : limit_(limit) {}

  // Adds the time that a process of another user has waited in vain for a builder of `uid`. Returns
  // true if this excludes the user.
  bool charge(uid_t uid, Duration waited, Time now);
  void forgive(uid_t uid, Time now);
  bool has(uid_t uid, Time now) const;
  bool empty() const { return records_.empty(); }
  // Returns the excluded users in ascending order.
  std::vector<uid_t> list(Time now) const;

 private:
  struct Record {
    Duration charged{0};
    Time last_charge;
    Time excluded_until = Time::min();
    Time forgivable_from = Time::min();
    bool is_over(Time now) const {
      return excluded_until <= now && forgivable_from <= now && last_charge + kPeriod <= now;
    }
  };

  const Duration limit_;
  std::unordered_map<uid_t, Record> records_;
};

}  // namespace cacheshim
