// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fuse/jobs/caller.h"
#include "fuse/jobs/job_processes.h"
#include "fuse/jobs/job_use.h"
#include "fuse/jobs/owner_mode.h"
#include "fuse/jobs/view_filter.h"
#include "fuse/nodes/node_ref.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// One uid's view of a job, with the user and group that the view shows as the owner of its files.
struct View {
  std::optional<uid_t> uid;  // empty: only root has used it
  gid_t gid = 0;
  std::vector<gid_t> groups;

  // Returns the attributes that the view shows for an object (owner=squash): the view's user as owner, and no sticky
  // bit. If the mode of a base file or directory does not let this uid read it, the object keeps its real owner and
  // stays inaccessible. A closed lock file of the base (is_closed_lock()) is shown with mode 0666.
  struct stat show(const struct stat& st, bool in_upper, bool is_root) const;

 private:
  bool may_read(const struct stat& st) const;
};

// Records whether a user other than root has claimed a job's first view. If so, also records whether the attributes
// that the kernel had cached before the claim have been invalidated: they may show the daemon's user as the owner.
// Thread-safe.
class ViewClaim {
 public:
  void make() { state_ = State::kMade; }
  // The view belongs to its user from the start: there is nothing to invalidate.
  void make_invalidated() { state_ = State::kInvalidated; }
  bool is_made() const { return state_ != State::kFree; }

  // Returns true if the caller must send the invalidation and then call end_invalidation().
  bool begin_invalidation() {
    State made = State::kMade;
    return state_.compare_exchange_strong(made, State::kInvalidating);
  }
  void end_invalidation() { state_ = State::kInvalidated; }
  bool is_invalidated() const { return state_ == State::kInvalidated; }

 private:
  enum class State : std::uint8_t { kFree, kMade, kInvalidating, kInvalidated };
  std::atomic<State> state_{State::kFree};
};

// The views of a job, their owners, and the processes that have entered them. Thread-safe.
class JobViews {
 public:
  struct Settings {
    OwnerMode owners;
    // Whether this is the view of a plain overlay: it has no owner, and its root is an ordinary directory.
    bool is_plain = false;
    std::optional<uid_t>
        owner;  // the first view's owner; empty: the first user other than root becomes the owner
  };
  // `use` and `filter` must outlive this object. While a job without shared uids is active, `filter` is open for the
  // first view's owner.
  JobViews(const Settings& settings, JobUse& use, ViewFilter& filter);

  // Call when the job begins and ends. When the job begins again, the first view keeps its owner. The other views keep
  // their owners too if the job then shares uids; otherwise they pass to the owner of the first view.
  void begin(bool shared_uids, std::optional<uid_t> recorded_owner = std::nullopt) EXCLUDES(mutex_);
  void end() EXCLUDES(mutex_);

  // Returns the view of the caller's uid. The first uid other than root becomes the owner of the first view. After
  // that, if the job shares uids, each other uid gets a separate view. If the job does not, each other uid gets the
  // first view, whose mode denies access to all but the owner.
  ViewSlot enter(const Caller& caller) EXCLUDES(mutex_);
  // Returns a living process that has entered a view, if there is any; forgets the processes that have exited. `proc`:
  // where procfs is mounted.
  std::optional<Process> known_process(const std::string& proc = "/proc") EXCLUDES(mutex_);

  View view(ViewSlot slot) const EXCLUDES(mutex_);
  // Returns the attributes that the view shows for an object. `is_root`: the object is the view's root.
  struct stat show(ViewSlot slot, const struct stat& st, bool in_upper, bool is_root) const
      EXCLUDES(mutex_);
  std::size_t count() const EXCLUDES(mutex_);

  bool shares_uids() const { return shared_uids_.load(); }
  // Whether each view belongs to one uid: the first one that uses it, apart from root.
  bool are_private() const { return !settings_.is_plain; }
  // The owner of a view; nothing if only root has used it.
  std::optional<uid_t> owner(ViewSlot slot = 0) const EXCLUDES(mutex_);
  std::vector<uid_t> owners() const EXCLUDES(mutex_);  // the owners of all views that have one
  // Makes `uid` the owner of the first view before the user's first access. Returns false if the
  // view belongs to another user.
  bool reserve(uid_t uid) EXCLUDES(mutex_);
  // Returns true if the job's first view belongs to a user other than `uid`, and the job does not share uids. The user
  // `uid`, even root, must then not get the files of the layer.
  bool is_closed_to(uid_t uid) const EXCLUDES(mutex_);
  // Whether the uid may change the job itself: true for root and for the owners of the job's views.
  bool may_change(uid_t uid) const EXCLUDES(mutex_);
  // Whether the uid may learn what the layer contains. As may_change(), but also true for the daemon's user, who can
  // read the layer's files.
  bool may_inspect(uid_t uid) const EXCLUDES(mutex_);

  ViewClaim claim;
  // Whether root has shared the job. If not, and the job is shared, the first view's owner has shared it (JobRights).
  std::atomic<bool> is_shared_by_root{false};

 private:
  const View& view_at(ViewSlot slot) const REQUIRES(mutex_);

  const Settings settings_;
  JobUse& use_;
  ViewFilter& filter_;
  std::atomic<bool> shared_uids_{false};
  mutable Mutex mutex_{LockRank::kJobViews};
  std::vector<View> views_ GUARDED_BY(mutex_){View{}};
  KnownProcesses processes_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
