// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "common/counters.h"
#include "fuse/requests/pending_replies.h"
#include "fuse/services/locks/lock_queue.h"
#include "store/threads/event_loop.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Identifies the file of a lock. A file of the base, which all jobs share, is identified by its device and inode
// numbers. A job's own file is identified by device 0 and its node, because its data may move to another inode while
// the file is locked. Exception: if NodeObjects::locked_inode() returns an inode for a file, this inode identifies the
// file.
struct LockFileId {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  friend auto operator<=>(const LockFileId&, const LockFileId&) = default;
  bool is_shared() const { return device != 0; }
};

// All locks of a mount. Each file has a LockQueue from the first request until the queue has no owner and no waiting
// request. An owner stays in the queue, even without locks, until a handle that it has used is closed. While a request
// waits for a lock whose release no event reports, the loop polls that lock.
//
// Thread-safe. Answers requests with no lock held.
class LockTable {
 public:
  // Returns a descriptor of a shared file (O_PATH is enough). Called with no lock of the table held.
  using Opener = std::function<Result<UniqueFd>()>;

  LockTable(Counters& counters, EventLoop& loop, LockSystem system = LockSystem::real());
  ~LockTable() { close().give(); }
  LockTable(const LockTable&) = delete;
  LockTable& operator=(const LockTable&) = delete;

  // Answers `reply` now or later. Errors: EAGAIN for a request that does not wait; EINTR; EDEADLK for a record lock
  // request whose owner would wait for itself (break_cycle()); ENOLCK if the user has reached a limit, or if the table
  // is closed and the request would have to wait; otherwise the error that the file system returns. If the file system
  // of a shared file does not support locks (the first attempt fails with ENOLCK, ENOSYS or EOPNOTSUPP), the lock
  // excludes only processes of this mount.
  void lock(const LockFileId& id, const Opener& open, const LockRequest& request,
            std::unique_ptr<LockReply> reply);
  // Call when a rename or link has made a job's own file (`from`) the lock file `to`, which no process has locked yet.
  // Moves the locks and waiting requests of `from` to `to`. From then on, requests with either id use the same queue,
  // until the queue has no owner and no waiting request. If `open` fails, the locks stay on the old file.
  void move(const LockFileId& from, const LockFileId& to, const Opener& open);
  // Whether `unlock` completely releases an exclusive lock of its owner on the file.
  bool releases_exclusive(const LockFileId& id, const LockRequest& unlock);
  // Whether `process` has an exclusive lock on the file.
  bool is_held_by(const LockFileId& id, pid_t process);
  // is_wanted(): whether a process has a lock on the file or waits for one. is_in_use(): whether
  // the file has a queue.
  bool is_wanted(const LockFileId& id);
  bool is_in_use(const LockFileId& id) { return find_queue(id) != nullptr; }
  // Serves F_GETLK. Returns an errno value, or 0 with `lock` filled in.
  int find(const LockFileId& id, const Opener& open, const LockRequest& request,
           struct flock& lock);
  // Call for FLUSH and RELEASE of a handle.
  void closed(const LockFileId& id, std::uint64_t handle, std::uint64_t owner);
  void released(const LockFileId& id, std::uint64_t handle);
  // Makes the loop answer a waiting request with EINTR. May be called from LockReply::wait(), and
  // with locks held.
  void interrupt(std::uint64_t ticket);

  struct State {
    // The number of handles with waiting requests, and the waiting processes (0: a process that the daemon cannot see).
    std::size_t waiting_handles = 0;
    std::set<pid_t> waiting_processes;
    // True if a file system of the base does not support locks: locks on its files exclude only processes of this
    // mount.
    bool is_local_only = false;
  };
  State state();
  // Refuses the waiting requests with ENOLCK, or with EAGAIN if they wait only for LockQueue::kGrace. Until reopen(),
  // also refuses new requests that would have to wait. Returns the replies to the waiting requests.
  PendingReplies close();
  void reopen() { closed_ = false; }
  // Runs `action` unless a process of the mount other than `process` has a lock on the file or waits for one. Holds the
  // mutex of the file's queue during the call to `action`, so no new request can start. Errors: EBUSY if another
  // process has a lock or waits for one; otherwise those of `open` and `action`.
  Status unless_wanted(const LockFileId& id, const Opener& open, pid_t process,
                       const std::function<Status()>& action);
  // Sets the function to call when a request or a close may have left a file without locks and waiting requests. It is
  // called with the mutex of the file's queue held. Call set_release_hook() once, before the first request.
  void set_release_hook(std::function<void()> hook) { on_release_ = std::move(hook); }

 private:
  struct IdHash {
    std::size_t operator()(const LockFileId& id) const {
      return id.inode * 0x9e3779b97f4a7c15ULL ^ id.device;
    }
  };
  using Queue = std::shared_ptr<LockQueue>;

  Queue find_queue(const LockFileId& id);
  std::vector<Queue> all_queues();
  Result<Queue> ensure_queue(const LockFileId& id, const Opener& open);
  Result<UniqueFd> file_of(const LockFileId& id, const Opener& open, bool& is_shared);
  bool can_lock(int file, std::uint64_t device);
  void end_visit(const LockFileId& id, const Queue& queue) REQUIRES(queue->mutex);
  void drop_if_unused(const LockFileId& id, const Queue& queue) REQUIRES(queue->mutex);
  void break_cycle(const LockFileId& id, const Queue& queue, const LockRequest& request,
                   std::uint64_t ticket);
  bool waits_for_itself(std::uint64_t owner) REQUIRES(cycles_mutex_);
  void call_loop() EXCLUDES(waiting_mutex_);
  std::uint64_t add_waiter(const Queue& queue, const LockRequest& request,
                           std::unique_ptr<LockReply> reply, Charge charge) REQUIRES(queue->mutex);
  EventLoop::Clock::time_point tend() EXCLUDES(waiting_mutex_);
  bool visit(const Queue& queue, const std::vector<std::uint64_t>& interrupts);

  Counters& counters_;
  const LockSystem system_;
  std::function<void()> on_release_ = [] {};
  std::atomic<std::size_t> count_{0};  // the number of queues
  std::atomic<std::uint64_t> next_ticket_{1};
  std::atomic<bool> closed_{false};

  // Held during the search for a cycle, so that only one request in the cycle is refused.
  Mutex cycles_mutex_{LockRank::kLockCycles};

  mutable Mutex mutex_{LockRank::kLockTable};
  std::unordered_map<LockFileId, Queue, IdHash> queues_ GUARDED_BY(mutex_);
  std::set<std::uint64_t> local_only_ GUARDED_BY(mutex_);  // devices whose file systems do not support locks
  std::set<std::uint64_t> lockable_ GUARDED_BY(mutex_);    // devices whose file systems support locks

  Mutex waiting_mutex_;
  std::set<Queue> waiting_ GUARDED_BY(waiting_mutex_);  // the queues that have waiters
  std::vector<std::uint64_t> interrupts_ GUARDED_BY(waiting_mutex_);
  bool is_called_ GUARDED_BY(waiting_mutex_) = false;  // tend() will run
  EventLoop::Task task_;                               // keep last: it uses the other members
};

}  // namespace cacheshim
