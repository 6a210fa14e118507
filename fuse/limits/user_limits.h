// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/limit_rows.h"
#include "common/result.h"
#include "store/threads/mutex.h"

// Each user's share of the daemon's resources, and the limits (common/limits.def).
//
// Besides the configured limit of one user, a resource may have a capacity that all users share. A user may then take
// units only if the user would then hold no more of them than remain free. So one user gets at most half of the
// capacity, and two users get at most a third each: some units remain for a user who has none. Root and the daemon's
// own user are counted, but never refused.
//
// A charge costs two atomic additions. A user's account is found without a lock.
namespace cacheshim {

class UserLimits;

// One user's use of the limited resources. Lives as long as its UserLimits. Thread-safe.
class UserAccount {
 public:
  UserAccount(UserLimits& limits, uid_t uid, bool is_limited)
      : limits_(limits), uid_(uid), is_limited_(is_limited) {}

  // Returns false, and takes nothing, if the limit does not permit `count` more units.
  [[nodiscard]] bool take(Limit limit, std::uint64_t count);
  // Takes `count` units regardless of the limit.
  void add(Limit limit, std::uint64_t count);
  void give_back(Limit limit, std::uint64_t count);
  // Returns the limit of one user; 0 if this user has none.
  std::uint64_t most(Limit limit) const;
  // Whether the user has taken more than three quarters of the limit.
  bool is_near(Limit limit) const;
  // Counts a refusal, and logs the user's first refusal for each limit. take() calls this function itself.
  void note_refusal(Limit limit);
  std::uint64_t used(Limit limit) const {
    return used_[static_cast<std::size_t>(limit)].load(std::memory_order_relaxed);
  }
  uid_t uid() const { return uid_; }

 private:
  UserLimits& limits_;
  const uid_t uid_;
  const bool is_limited_;
  std::atomic<std::uint32_t> reported_{0};  // a bit for each limit whose refusal is in the log
  // Relaxed: the values are only counts, and no other data depend on them.
  std::array<std::atomic<std::uint64_t>, kLimitRows.size()> used_{};
};

// Units that are charged to an account, and given back by the destructor. Without an account, no user is charged. Not
// thread-safe.
class Charge {
 public:
  Charge() = default;
  // Makes a charge of 0 units.
  Charge(UserAccount* account, Limit limit) : account_(account), limit_(limit) {}
  Charge(Charge&& other) noexcept
      : account_(std::exchange(other.account_, nullptr)),
        limit_(other.limit_),
        count_(std::exchange(other.count_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    if (this == &other) return *this;
    release();
    account_ = std::exchange(other.account_, nullptr);
    limit_ = other.limit_;
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  ~Charge() { release(); }

  // Errors: the errno value in the limit's row; EAGAIN if the row has none.
  static Result<Charge> take(UserAccount* account, Limit limit, std::uint64_t count = 1);
  // Changes the charge to `count` units. Returns false, and changes nothing, if the limit does not permit that many.
  // Shrinking never fails.
  [[nodiscard]] bool resize(std::uint64_t count);
  // As resize(), but regardless of the limit.
  void set(std::uint64_t count);
  std::uint64_t count() const { return count_; }

 private:
  void release() noexcept {
    if (account_ != nullptr && count_ > 0) account_->give_back(limit_, count_);
  }

  UserAccount* account_ = nullptr;
  Limit limit_ = Limit::kHandles;
  std::uint64_t count_ = 0;
};

// The accounts of all users of a mount. Thread-safe.
class UserLimits {
 public:
  struct Options {
    LimitValues most{};        // the limits of one user; 0: no limit
    LimitValues capacities{};  // the limits of all users together; 0: no limit
    uid_t own_uid = 0;         // the daemon's user, who has no limits
  };
  // The maximum number of users with separate accounts; all others share one. Each account takes about 120 bytes, and
  // is freed only with this object.
  static constexpr std::size_t kMostAccounts = 65536;

  explicit UserLimits(const Options& options);
  ~UserLimits();
  UserLimits(const UserLimits&) = delete;
  UserLimits& operator=(const UserLimits&) = delete;

  UserAccount& account(uid_t uid);

  // The use of a resource: the total of all users, the highest use of one user with limits, and the number of refusals
  // since the mount.
  struct Use {
    std::uint64_t most;      // the limit of one user; 0: none
    std::uint64_t capacity;  // the limit of all users together; 0: none
    std::uint64_t total;
    std::uint64_t highest;
    std::uint64_t refused;
  };
  std::array<Use, kLimitRows.size()> uses() const;

 private:
  friend class UserAccount;
  struct Pool {
    std::uint64_t most;
    std::uint64_t capacity;
    std::atomic<std::uint64_t> total{0};
    std::atomic<std::uint64_t> refused{0};
  };
  // A hash table with open addressing. A part is allocated with its first account, and freed only with this object.
  static constexpr std::size_t kParts = 256;
  static constexpr std::size_t kSlots = 512;
  struct Part {
    std::array<std::atomic<UserAccount*>, kSlots> slots{};
  };

  UserAccount* find(uid_t uid) const;
  UserAccount& add(uid_t uid) EXCLUDES(mutex_);
  bool is_limited(uid_t uid) const { return uid != 0 && uid != own_uid_; }

  const uid_t own_uid_;
  std::array<Pool, kLimitRows.size()> pools_;
  // Release on store, acquire on load: a reader must see the part's slots and the account's members.
  std::array<std::atomic<Part*>, kParts> parts_{};
  UserAccount shared_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Part>> owned_parts_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<UserAccount>> accounts_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
