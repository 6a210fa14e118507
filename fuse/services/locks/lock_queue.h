// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "fuse/services/locks/lock_request.h"
#include "fuse/services/locks/open_descriptors.h"
#include "store/sys/mutex.h"

namespace cacheshim {

// The queue's calls to the system; replaced in tests. Errors are errno values, 0 for none.
struct LockSystem {
  // Sets a lock without waiting: flock(2), or F_OFD_SETLK of a range, on the owner's own
  // descriptor.
  std::function<int(int fd, const LockRequest& request)> set;
  // F_OFD_GETLK: whether another owner's lock conflicts.
  std::function<int(int fd, struct flock& lock)> find;
  // These four have the contracts of the functions in open_descriptors.h.
  std::function<bool(pid_t process)> has_ended;
  std::function<std::vector<OpenDescriptor>(pid_t process, std::uint64_t shown_inode, int known)>
      descriptors;
  std::function<bool(pid_t process, const OpenDescriptor& descriptor)> has_descriptor;
  std::function<LockCallArguments(pid_t thread)> arguments;
  // Whether a RELEASE may be in progress that LockTable has not received; true if unknown.
  std::function<bool()> is_releasing;
  std::function<std::chrono::steady_clock::time_point()> now;
  static LockSystem real();
};

// The locks that this mount's processes have on one file, and the waiting requests for it.
//
// The kernel of this machine grants the locks, on descriptors of `file`, one per owner. So locks
// beside the mount count, the kernel manages ranges, and a close releases locks. The queue
// implements the waiting, since no thread may block in flock: requests are granted in order of
// arrival, and only the first one is tried. A request that does not wait is tried at once, as by
// flock(2). So is a request of a process that already has a lock here: behind a waiter that waits
// for that very process, it would wait forever.
//
// close(2) returns before RELEASE arrives, so a request that does not wait could still find a
// closed descriptor's lock. If a descriptor has reported its close (FLUSH), or may have closed
// unseen, the request waits up to kGrace.
//
// Processes poll for locks, so a refused request takes the same time whatever descriptors the
// holder has: it examines at most kMostLooks of them in /proc.
class LockQueue {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kGrace{3};
  static constexpr std::size_t kMostLooks = 8;
  // Requests to answer once `mutex` is released.
  using Answers = std::vector<std::pair<std::unique_ptr<LockCall>, int>>;

  // `file`: any descriptor of it. `is_shared`: processes other than this daemon may lock it.
  LockQueue(UniqueFd file, bool is_shared, const LockSystem& system)
      : file_(std::move(file)), is_shared_(is_shared), system_(system) {}

  Mutex mutex{LockRank::kLockQueue};
  bool dropped GUARDED_BY(mutex) = false;  // no longer the file's queue
  bool moved GUARDED_BY(mutex) = false;    // two ids lead to this queue (LockTable::move)

  // Tries the request. Returns 0 if it is granted, an error for the reply, or EINPROGRESS if it
  // must wait.
  int ask(const LockRequest& request, Answers& answers) REQUIRES(mutex);
  void add_waiter(const LockRequest& request, std::unique_ptr<LockCall> call, std::uint64_t ticket)
      REQUIRES(mutex);
  // Sets `lock` to a lock that conflicts with a record lock request; `lock.l_type` is F_UNLCK if
  // there is none.
  int find(const LockRequest& request, struct flock& lock, Answers& answers) REQUIRES(mutex);
  // Call when `owner` has closed a descriptor of the handle and so loses its record locks.
  void closed(std::uint64_t handle, std::uint64_t owner, Answers& answers) REQUIRES(mutex);
  // Call when the handle is gone, together with the locks that were made through it.
  void released(std::uint64_t handle, Answers& answers) REQUIRES(mutex);
  // Answers a waiting request with `error`. Does nothing if the request has been answered.
  void withdraw(std::uint64_t ticket, int error, Answers& answers) REQUIRES(mutex);
  // Tries waiting requests whose conflicting locks may end without an event.
  void poll(Answers& answers) REQUIRES(mutex);
  // Takes all locks again on `file`, which is not locked yet, and uses that file from now on.
  // Owners whose locks the file system does not grant lose them.
  void move_to(UniqueFd file, bool is_shared) REQUIRES(mutex);
  // Answers waiting requests with `error`, and those that wait only for kGrace with EAGAIN.
  void refuse_all(int error, Answers& answers) REQUIRES(mutex);

  bool has_waiters() const REQUIRES(mutex) { return !waiters_.empty(); }
  // Adds to `blockers` the owners whose record locks conflict with the waiting record lock requests of `owners`.
  void add_blockers(const std::set<std::uint64_t>& owners, std::set<std::uint64_t>& blockers) const
      REQUIRES(mutex);
  // Adds the handles of waiting requests, and their processes.
  void add_waiting(std::set<std::uint64_t>& handles, std::set<pid_t>& processes) const
      REQUIRES(mutex);
  bool is_unused() const REQUIRES(mutex) { return owners_.empty() && waiters_.empty(); }
  // Whether `unlock` releases the whole of an exclusive lock that its owner has.
  bool gives_up_exclusive(const LockRequest& unlock) const REQUIRES(mutex);
  // Whether `process` has an exclusive lock here.
  bool is_held_by(pid_t process) const REQUIRES(mutex);
  // Whether another process than `process` has a lock here, or waits for one.
  bool is_wanted_by_others(pid_t process) const REQUIRES(mutex);
  // Whether a lock may be released, or a wait may end, without an event.
  bool needs_poll() const REQUIRES(mutex);

 private:
  struct Range {
    short type;
    off_t start;
    off_t length;
  };
  static void subtract(std::vector<Range>& ranges, const LockRequest& request);
  static bool covers(const LockRequest& request, const Range& range);
  struct Owner {
    UniqueFd fd;
    pid_t process = 0;
    std::uint64_t shown_inode = 0;
    std::vector<std::uint64_t> handles;
    bool tells_close = false;
    Clock::time_point closed_at{};
    std::vector<Range> held;
    // POSIX: a process that closes any descriptor of a file loses its record locks on it. The kernel reports a
    // close by FLUSH, but not for a handle that was opened before the file was locked. If there was such a
    // handle at the process's first lock, these are the descriptors that the process then had: once one of them
    // is closed, the locks are gone.
    std::vector<OpenDescriptor> descriptors;
    bool ends_with_one = false;
    mutable std::size_t next_look = 0;  // in `descriptors`
  };
  struct Waiter {
    LockRequest request;
    std::unique_ptr<LockCall> call;
    std::uint64_t ticket;
    std::optional<Clock::time_point> until;  // of a request that waits only for kGrace
  };
  using OwnerKey = std::pair<bool, std::uint64_t>;  // whether it owns record locks; its number
  using Owners = std::map<OwnerKey, Owner>;

  static bool conflict(const LockRequest& request, bool is_record, const Range& range);
  Result<Owner*> ensure_owner(const LockRequest& request) REQUIRES(mutex);
  int try_set(const LockRequest& request) REQUIRES(mutex);
  int try_set_again(const LockRequest& request, bool& is_any_dropped) REQUIRES(mutex);
  void remember(Owner& owner, const LockRequest& request, int error) REQUIRES(mutex);
  bool must_queue(const LockRequest& request) const REQUIRES(mutex);
  bool is_in_the_way(const LockRequest& request, const OwnerKey& key, const Owner& owner) const
      REQUIRES(mutex);
  bool may_leave_soon(const Owner& owner) const REQUIRES(mutex);
  bool may_be_free_soon(const LockRequest& request) const REQUIRES(mutex);
  bool may_end_unseen(const LockRequest& request) const REQUIRES(mutex);
  bool has_lost_locks(const Owner& owner) const REQUIRES(mutex);
  bool drop_stale(const LockRequest& request) REQUIRES(mutex);
  Owners::iterator drop(Owners::iterator known) REQUIRES(mutex);
  void note_descriptors(Owner& owner, const LockRequest& request) const REQUIRES(mutex);
  bool has_closed_one(const Owner& owner) const REQUIRES(mutex);
  bool is_held_against(const LockRequest& request) const REQUIRES(mutex);
  void pump(Answers& answers) REQUIRES(mutex);
  bool grant_waiters(Answers& answers) REQUIRES(mutex);
  bool take_again(const OwnerKey& key, Owner& owner) const REQUIRES(mutex);

  UniqueFd file_ GUARDED_BY(mutex);
  bool is_shared_ GUARDED_BY(mutex);
  const LockSystem& system_;
  Owners owners_ GUARDED_BY(mutex);
  std::deque<Waiter> waiters_ GUARDED_BY(mutex);
};

}  // namespace cacheshim
