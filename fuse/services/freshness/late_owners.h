// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <set>

#include "fuse/services/freshness/notification.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// The users whose views the daemon invalidates late, because one of their processes blocks an invalidation.
//
// A process can block an invalidation for as long as it likes: getdents(2) holds the directory's lock while it copies
// names to the process, and the buffer may be a mapping of a file whose file system never returns the data. The kernel
// then blocks the invalidation of any name in that directory, even with FUSE_EXPIRE_ONLY, and no signal ends the wait.
// Once a thread has waited too long (NotificationQueue), it serves only this user's views, so that no other user waits
// for it. Until the user's invalidations complete in time again, and for a while after that,
// - the invalidations in the user's views go to a queue, which that thread sends;
// - the daemon lets the kernel cache nothing in these views, and the kernel drops the names that it has cached
//   (FUSE_NOTIFY_INC_EPOCH; before Linux 6.16, these names expire within a minute).
// So the user's own processes may see old attributes or listings, while all other processes see every change as before.
//
// Thread-safe.
class LateOwners {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMost = 32;

  enum class State : std::uint8_t {
    kInTime,
    kLate,
    kAmongAll,  // kMost other users are late; while that is so, all users count as late
  };

  // `shortest`: how long a user remains late after a process has blocked an invalidation. If the user is late again
  // within kMemory, this time doubles, up to kLongest. So a user whose processes block invalidations again and again
  // delays other users less and less often.
  explicit LateOwners(Clock::duration shortest = std::chrono::seconds(1)) : shortest_(shortest) {}

  bool any() const { return late_ > 0; }
  bool is_late(uid_t owner) const EXCLUDES(mutex_);

  enum class Cause : std::uint8_t { kProcess, kRequest };
  // Call when a thread is blocked while it sends an invalidation in a view of this user. `cause`: whether a process of
  // the user blocks the thread (kProcess), or a request of the user that itself waits for the daemon (kRequest). The
  // thread calls serve() once it is no longer blocked. Returns how long the user remains late from then on; zero if
  // only requests were the cause.
  Clock::duration begin(uid_t owner, Cause cause, Clock::time_point now) EXCLUDES(mutex_);
  // If the owner of the invalidation's view is late, queues the invalidation for the thread that serves the owner. But
  // if kMostNames invalidations are queued, drops the invalidation of a name. Returns the owner's state.
  State queue_if_late(const Notification& notification) EXCLUDES(mutex_);
  // Sends the queued invalidations of the owner until the owner's remaining time (begin()) is over and the queue is
  // empty, or until stop().
  void serve(uid_t owner, const NotificationWriter& writer) EXCLUDES(mutex_);
  // Makes serve() return, unless it is blocked. Idempotent.
  void stop() EXCLUDES(mutex_);

 private:
  static constexpr auto kLongest = std::chrono::minutes(10);
  static constexpr auto kMemory = std::chrono::minutes(10);
  static constexpr std::size_t kMostNames = 4096;

  struct Owner {
    unsigned threads = 0;       // the owner is late while there is a thread
    Clock::duration penalty{};  // the last value of `remains` that a process has caused
    Clock::duration remains{};  // how long the owner remains late
    Clock::time_point ended{};
    std::set<Notification> queued;
    CondVar wake;
  };

  State state(uid_t owner) const REQUIRES(mutex_);
  void forget_old(Clock::time_point now) REQUIRES(mutex_);
  void adopt_queues(Owner& owner) REQUIRES(mutex_);
  bool wait_for_notification(Owner& owner, Clock::time_point end) REQUIRES(mutex_);

  const Clock::duration shortest_;
  // The number of owners with a thread. Sequentially consistent: written before the names of an owner are expired, and
  // read after the daemon has looked up a name.
  std::atomic<std::size_t> late_{0};
  mutable Mutex mutex_;  // not held while an invalidation is sent
  std::map<uid_t, Owner> owners_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace cacheshim
