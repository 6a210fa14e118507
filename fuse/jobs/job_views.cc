// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job_views.h"

#include <algorithm>
#include <utility>

#include "store/locks/lock_access.h"
#include "store/sys/sys.h"

namespace cacheshim {

bool View::may_read(const struct stat& st) const {
  if (!uid || *uid == 0) return true;
  const mode_t wanted = S_ISDIR(st.st_mode) ? 05 : 04;
  mode_t granted = st.st_mode & 07;
  const bool in_group =
      st.st_gid == gid || std::find(groups.begin(), groups.end(), st.st_gid) != groups.end();
  if (st.st_uid == *uid) return true;  // the user's own object keeps its real mode
  if (in_group) {
    granted = (st.st_mode >> 3) & 07;
  }
  return (granted & wanted) == wanted;
}

struct stat View::show(const struct stat& st, bool in_upper, bool is_root) const {
  struct stat shown = st;
  const bool is_lock = !in_upper && is_closed_lock(st);
  if (is_lock) shown.st_mode = S_IFREG | 0666;
  if (is_root) {
    // The mode is 0700 even while the view has no owner: before the kernel denies access, it requests the attributes
    // again (fuse_permission), and that request shows the daemon who the first user is.
    shown.st_mode = S_IFDIR | 0700;
  } else if (!in_upper && !S_ISLNK(st.st_mode) && !is_lock && !may_read(st)) {
    return shown;
  }
  shown.st_uid = uid.value_or(sys::own_uid());
  shown.st_gid = uid ? gid : sys::own_gid();
  shown.st_mode &= ~static_cast<mode_t>(S_ISVTX);
  // 1 means that subdirectories are not counted, as in overlayfs and btrfs. Direct answers show 1
  // too.
  if (S_ISDIR(st.st_mode)) shown.st_nlink = 1;
  return shown;
}

JobViews::JobViews(const Settings& settings, JobUse& use, ViewFilter& filter)
    : settings_(settings), use_(use), filter_(filter) {
  if (settings.is_plain) claim.make_invalidated();  // open to everybody from the start
  if (settings.owner) {
    views_.front() = View{settings.owner, sys::own_gid(), {}};
    claim.make_invalidated();
  }
}

void JobViews::begin(bool shared_uids, std::optional<uid_t> recorded_owner) {
  const MutexLock lock(mutex_);
  shared_uids_ = shared_uids;
  if (recorded_owner) {
    views_.front().uid = recorded_owner;
    claim.make_invalidated();
  }
  if (shared_uids) return;
  const View& view = views_.front();
  // The kernel may still know the other views from an earlier cycle. From now on, these views belong to the owner of
  // the first view.
  std::fill(views_.begin() + 1, views_.end(), view);
  filter_.open(view.uid.value_or(sys::own_uid()), view.uid ? view.gid : sys::own_gid());
}

void JobViews::end() {
  const MutexLock lock(mutex_);
  processes_.clear();
  filter_.close();
}

ViewSlot JobViews::enter(const Caller& caller) {
  use_.touch();
  const MutexLock lock(mutex_);
  processes_.note(caller.tid);
  for (std::size_t slot = 0; slot < views_.size(); ++slot) {
    View& view = views_[slot];
    if (view.uid == caller.uid) {
      if (view.gid != caller.gid) view.groups = groups_of(caller.tid);
      if (slot == 0) filter_.set_owner(caller.uid, caller.gid);
      view.gid = caller.gid;
      return static_cast<ViewSlot>(slot);
    }
  }
  // Root does not become the owner of a view; the first other user does.
  if (caller.uid == 0 && (!views_.front().uid || !shared_uids_)) return 0;
  View mine{caller.uid, caller.gid, groups_of(caller.tid)};
  if (!views_.front().uid) {
    views_.front() = std::move(mine);
    claim.make();
    filter_.set_owner(caller.uid, caller.gid);
    return 0;
  }
  if (!shared_uids_) return 0;
  views_.push_back(std::move(mine));
  return static_cast<ViewSlot>(views_.size() - 1);
}

std::optional<Process> JobViews::known_process(const std::string& proc) {
  const MutexLock lock(mutex_);
  return processes_.find_living(proc);
}

const View& JobViews::view_at(ViewSlot slot) const {
  return slot < views_.size() ? views_[slot] : views_.front();
}

View JobViews::view(ViewSlot slot) const {
  const MutexLock lock(mutex_);
  return view_at(slot);
}

struct stat JobViews::show(ViewSlot slot, const struct stat& st, bool in_upper,
                           bool is_root) const {
  const bool is_private_root = is_root && are_private();
  if (!settings_.owners.keep || is_private_root) {
    const MutexLock lock(mutex_);
    return view_at(slot).show(st, in_upper, is_root);
  }
  struct stat shown = st;
  if (are_private() && !in_upper && is_closed_lock(st)) shown.st_mode = S_IFREG | 0666;
  if (settings_.owners.shown_uid) shown.st_uid = *settings_.owners.shown_uid;
  if (settings_.owners.shown_gid) shown.st_gid = *settings_.owners.shown_gid;
  return shown;
}

std::size_t JobViews::count() const {
  const MutexLock lock(mutex_);
  return views_.size();
}

std::optional<uid_t> JobViews::owner(ViewSlot slot) const {
  const MutexLock lock(mutex_);
  return view_at(slot).uid;
}

bool JobViews::reserve(uid_t uid) {
  const MutexLock lock(mutex_);
  View& first = views_.front();
  if (first.uid) return *first.uid == uid;
  first.uid = uid;
  claim.make();  // the kernel may know the view as root's
  filter_.set_owner(uid, sys::own_gid());
  return true;
}

std::vector<uid_t> JobViews::owners() const {
  std::vector<uid_t> uids;
  const MutexLock lock(mutex_);
  for (const View& view : views_) {
    if (view.uid) uids.push_back(*view.uid);
  }
  return uids;
}

bool JobViews::is_closed_to(uid_t uid) const {
  if (settings_.is_plain || shared_uids_) return false;
  const std::optional<uid_t> first = owner();
  return first && *first != uid;
}

bool JobViews::may_inspect(uid_t uid) const { return uid == sys::own_uid() || may_change(uid); }

bool JobViews::may_change(uid_t uid) const {
  if (uid == 0) return true;
  const MutexLock lock(mutex_);
  return std::any_of(views_.begin(), views_.end(),
                     [uid](const View& view) { return view.uid == uid; });
}

}  // namespace cacheshim
