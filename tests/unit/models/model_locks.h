// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fuse/services/locks/lock_queue.h"

namespace cacheshim::locks_model {

inline constexpr std::size_t kBytes = 8;  // the last one represents all following bytes

inline bool covers(const LockRequest& request, std::size_t byte) {
  const auto at = static_cast<off_t>(byte);
  if (!request.is_record) return true;
  return at >= request.start && (request.length == 0 || at < request.start + request.length);
}

inline bool conflict(short left, short right) {
  return left != F_UNLCK && right != F_UNLCK && (left == F_WRLCK || right == F_WRLCK);
}

inline bool conflict(const LockRequest& left, const LockRequest& right) {
  if (left.is_record != right.is_record || !conflict(left.type, right.type)) return false;
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    if (covers(left, byte) && covers(right, byte)) return true;
  }
  return false;
}

// The locks that the model expects on one file: for each owner, the type of its lock on each byte.
class ModelLocks {
 public:
  // Whether the owner owns record locks, and its number.
  using Owner = std::pair<bool, std::uint64_t>;

  // Removes the locks that the owner loses even if the request is not granted: the locks on the bytes
  // that the request unlocks, and a flock(2) lock that the request converts, because flock(2) first
  // releases the old lock.
  void begin(const LockRequest& request) {
    const auto held = owners_.find({request.is_record, request.owner});
    if (held == owners_.end()) return;
    const bool converts = !request.is_record && held->second.types.front() != request.type;
    if (request.type == F_UNLCK || converts) set(held->second, request, F_UNLCK);
  }
  void grant(const LockRequest& request) {
    if (request.type == F_UNLCK) return;
    Held& held = owners_.try_emplace({request.is_record, request.owner}).first->second;
    held.process = request.process;
    held.reports_close = request.reports_close;
    set(held, request, request.type);
  }
  void erase(const Owner& owner) { owners_.erase(owner); }

  // Returns the processes with a conflicting lock. A dead process's record locks count only if the
  // kernel reports the process's closes.
  std::vector<pid_t> holders_against(const LockRequest& request,
                                     const std::set<pid_t>& dead) const {
    std::vector<pid_t> holders;
    for (const auto& [owner, held] : owners_) {
      if (owner == Owner{request.is_record, request.owner} || owner.first != request.is_record)
        continue;
      if (owner.first && !held.reports_close && dead.contains(held.process)) continue;
      bool has_conflict = false;
      for (std::size_t byte = 0; byte < kBytes; ++byte)
        has_conflict |= covers(request, byte) && conflict(request.type, held.types.at(byte));
      if (has_conflict) holders.push_back(held.process);
    }
    return holders;
  }

 private:
  struct Held {
    Held() { types.fill(F_UNLCK); }
    std::array<short, kBytes> types;
    pid_t process = 0;
    bool reports_close = false;
  };
  static void set(Held& held, const LockRequest& request, short type) {
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
      if (covers(request, byte)) held.types.at(byte) = type;
    }
  }

  std::map<Owner, Held> owners_;
};

}  // namespace cacheshim::locks_model
