// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// The lock order of the daemon. It is written down only here.
//
// The locks that a thread may take while it holds a lock are indented below that lock; `…` stands for a subtree that is
// shown elsewhere. No lock is held across a reply to the kernel, nor while a callback runs, unless the callback's
// declaration says so.
//
//   PackExchange::mutex_                one pack at a time
//     RemoteExchange …, Publisher::staging_locks_ …, and the leaves below
//   Job::end_mutex                      the end of a job
//     Publisher::staging_locks_         one unit of one job at a time
//       Overlay …, UnitTurns::mutex_, UnitLocks::mutex_, RejectedEntries::mutex_
//       Publisher::commit_locks_        one unit at a time
//         Overlay …
//     LeaseTable …
//   DirHandle::mutex                    a directory's listing is read
//     JobTable …, Overlay …
//   SharedFile::mutex                   a file of class `shared` is staged or put in its place
//     Overlay …
//   Mount::closing_mutex_
//     LeaseTable …, JobTable …, LockTable …, JobLife::mutex_
//   LeaseTable::mutex                   with no lock held but closing_mutex_ or end_mutex
//     ViewFilter::mutex_, Underway::mutex_, Heartbeats::mutex_, NodeTree …, RemoteExchange …
//   RemoteExchange::mutex_
//     AsyncClient::mutex_, PushQueue::mutex_, TaskQueue::mutex_
//   Ticker::mutex_, FairQueue::mutex_   with no lock held
//     ControlSession::mutex_
//   JobTable::mutex_
//     OverlayState::mutex               one job's at a time; shared, or exclusively
//       SilentGrowth::mutex_
//         JobViews …, and the leaves below
//       LockRemovals::mutex_
//         ViewFilter::mutex_, HiddenLocks::mutex_, LockQueue …
//       NamedLocks::mutex_
//         LockTable::mutex_
//       LockQueue::mutex                one at a time; also after LockTable::cycles_mutex_
//         LockTable::mutex_, LockTable::waiting_mutex_
//         to remove a lock file: OriginLog …, ViewFilter …, and the leaves below
//       JobViews::mutex_
//         ViewFilter::mutex_
//           MountOnlyEntries::mutex_
//       OriginLog::file_mutex_
//         OriginLog::mutex_
//       IoModes::Shard::mutex
//         LayerIndex::mutex_
//       NodeTree::mutex
//         Arena::mutex_
//       PendingUnlinks::mutex_
//       NotificationQueue::mutex_
//         LateOwners::mutex_, HeldDirectories::mutex_
//       JobLife::mutex_, JobPolicy::mutex_, JobPublishing::mutex_, UnsettledWrites::mutex_, PendingEntries::mutex_,
//       Job::share_mutex_, EntryReads::mutex_, StagedCopies::mutex_, LayerIndex::mutex_, HiddenLocks::mutex_,
//       OpenFiles::Shard::mutex, Batons::mutex_, InotifyWatch::mutex_, TaskQueue::mutex_, UserLimits::mutex_,
//       LayerUse::mutex_, DetachedQueue
//
// All other mutexes are taken with no lock held, and no lock is taken under them: CallerJobs, Closer,
// EnvironmentReader, EventLoop, OpenVerifier, SharedFiles, StoreRoom, transport/.
namespace cacheshim {

// A thread that holds a lock takes only locks of a higher rank, and no other lock of the same rank.
// The ranks are one linear order of the tree above.
enum class LockRank : std::uint8_t {
  kPack,
  kJobEnd,
  kListing,
  kSharedFile,
  kStagedUnit,
  kCommittedUnit,
  kClosing,
  kLeaseTable,
  kJobTable,
  kOverlay,
  kSilentGrowth,
  kRemovals,
  kLockCycles,
  kNamedLocks,
  kLockQueue,
  kLockTable,
  kJobViews,
  kOriginFile,
  kIoModes,
  kViewFilter,
  kNodeTable,
  kPendingUnlinks,
  kTicker,
  kFairQueue,
  kNotificationQueue,
  kRemote,
  kLeaf,  // no lock is taken under it
};

// Track the locks that the calling thread holds. If the thread breaks the order, these functions abort the process,
// with a line on stderr that names the locks. `lock` is an address that identifies the lock.
namespace held_locks {
void add(const void* lock, LockRank rank);
// For try_lock(), which cannot wait and so cannot deadlock.
void add_unchecked(const void* lock, LockRank rank);
void remove(const void* lock);
void require(const void* lock, LockRank rank);
void require_none();
}  // namespace held_locks

// Reports one lock's changes to held_locks in builds with -Dlock_ranks=true (meson_options.txt); does nothing in other
// builds.
#ifdef CACHESHIM_LOCK_RANKS
class RankCheck {
 public:
  explicit RankCheck(LockRank rank) : rank_(rank) {}
  void before_lock() const { held_locks::add(this, rank_); }
  void after_try_lock() const { held_locks::add_unchecked(this, rank_); }
  void after_unlock() const { held_locks::remove(this); }
  void require() const { held_locks::require(this, rank_); }

 private:
  const LockRank rank_;
};
// Call before a reply to the kernel.
inline void require_no_lock() { held_locks::require_none(); }
#else
class RankCheck {
 public:
  explicit RankCheck(LockRank) {}
  void before_lock() const {}
  void after_try_lock() const {}
  void after_unlock() const {}
  void require() const {}
};
inline void require_no_lock() {}
#endif

}  // namespace cacheshim
