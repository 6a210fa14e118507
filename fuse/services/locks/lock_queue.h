// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/services/locks/lock_owners.h"
#include "fuse/services/locks/lock_request.h"
#include "fuse/services/locks/lock_system.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The locks on one file (LockOwners), and the requests that wait for them.
//
// No thread of the daemon may block in flock(2), so requests wait in this queue. They are granted in order of arrival.
// A request for the whole file waits for all earlier requests for the whole file; a record lock request waits for the
// earlier ones with which it conflicts. Two kinds of requests are tried immediately: a request that does not wait
// (LOCK_NB), and a request from a process that already has a lock of the same kind on the file. In the queue, a request
// of the second kind could be behind a request that waits for the lock that its process already has. Both requests
// would then wait forever.
//
// close(2) returns before the daemon receives RELEASE, so a request that does not wait could conflict with the lock of
// a descriptor that is already closed. The queue therefore delays the refusal by up to kGrace if no other request
// waits, and if the holder's descriptor has been closed (FLUSH) or may have been closed without a report.
class LockQueue {
 public:
  using Clock = LockSystem::Clock;
  static constexpr std::chrono::milliseconds kGrace{3};
  // Requests to answer once `mutex` is released.
  using Answers = std::vector<std::pair<std::unique_ptr<LockReply>, int>>;

  // The arguments are those of LockOwners.
  LockQueue(UniqueFd file, bool is_shared, const LockSystem& system)
      : owners(std::move(file), is_shared, system), system_(system) {}

  Mutex mutex{LockRank::kLockQueue};
  bool dropped GUARDED_BY(mutex) = false;  // LockTable no longer uses this queue for the file
  bool moved GUARDED_BY(mutex) = false;    // two ids identify this queue (LockTable::move)
  // Outside this class: after you call a method of `owners` that may release a lock, call poll(), which tries the
  // waiting requests.
  LockOwners owners GUARDED_BY(mutex);

  // Tries the request. Returns 0 if the lock is granted, EINPROGRESS if the request must wait, otherwise the errno
  // value for the reply.
  int try_request(const LockRequest& request, Answers& answers) REQUIRES(mutex);
  // `charge` pays for the wait.
  void add_waiter(const LockRequest& request, std::unique_ptr<LockReply> reply,
                  std::uint64_t ticket, Charge charge) REQUIRES(mutex);
  // Sets `lock` to a lock that conflicts with a record lock request; `lock.l_type` is F_UNLCK if
  // there is none.
  int find(const LockRequest& request, struct flock& lock, Answers& answers) REQUIRES(mutex);
  // Call when `owner` has closed a descriptor of the handle and so loses its record locks.
  void closed(std::uint64_t handle, std::uint64_t owner, Answers& answers) REQUIRES(mutex);
  // Call when the handle is released. Drops the owners that have made requests through it.
  void released(std::uint64_t handle, Answers& answers) REQUIRES(mutex);
  // Answers a waiting request with `error`. Does nothing if the request has been answered.
  void withdraw(std::uint64_t ticket, int error, Answers& answers) REQUIRES(mutex);
  // Tries the waiting requests. Answers a request that waits only for kGrace with EAGAIN if kGrace is over, or if a
  // conflicting lock will not be released soon.
  void poll(Answers& answers) REQUIRES(mutex);
  // Answers all waiting requests: those that wait only for kGrace with EAGAIN, the others with `error`.
  void refuse_all(int error, Answers& answers) REQUIRES(mutex);

  bool has_waiters() const REQUIRES(mutex) { return !waiters_.empty(); }
  // Adds the owners whose record locks conflict with the waiting record lock requests of the owners `waiting`.
  void add_blockers(const std::set<std::uint64_t>& waiting,
                    std::set<std::uint64_t>& blockers) const REQUIRES(mutex);
  // Adds the handles of waiting requests, and their processes.
  void add_waiting(std::set<std::uint64_t>& handles, std::set<pid_t>& processes) const
      REQUIRES(mutex);
  bool is_unused() const REQUIRES(mutex) { return owners.is_empty() && waiters_.empty(); }
  // Whether a process other than `process` has a lock here, or waits for one.
  bool is_wanted_by_others(pid_t process) const REQUIRES(mutex);
  // Whether a lock may be released, or a wait may end, without an event that the daemon receives.
  bool needs_poll() const REQUIRES(mutex);

 private:
  struct Waiter {
    LockRequest request;
    std::unique_ptr<LockReply> reply;
    std::uint64_t ticket;
    std::optional<Clock::time_point> until;  // the deadline of a request that waits only for kGrace
    Charge charge;
  };

  int try_set(const LockRequest& request, bool& is_any_dropped) REQUIRES(mutex);
  bool must_queue(const LockRequest& request) const REQUIRES(mutex);
  void pump(Answers& answers) REQUIRES(mutex);
  bool grant_waiters(Answers& answers) REQUIRES(mutex);

  const LockSystem& system_;
  std::deque<Waiter> waiters_ GUARDED_BY(mutex);
};

}  // namespace cacheshim
