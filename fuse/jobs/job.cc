// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job.h"

#include <algorithm>

#include "common/job_id.h"
#include "store/base/store.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Far longer than a RELEASE takes to arrive (some 10 µs), far shorter than a caller would notice.
constexpr auto kReleaseDelay = std::chrono::milliseconds(100);

}  // namespace

bool View::may_read(const struct stat& st) const {
  if (!uid || *uid == 0) return true;
  const mode_t wanted = S_ISDIR(st.st_mode) ? 05 : 04;
  mode_t granted = st.st_mode & 07;
  const bool in_group =
      st.st_gid == gid || std::find(groups.begin(), groups.end(), st.st_gid) != groups.end();
  if (st.st_uid == *uid) return true;  // its own: shown with its real mode
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
    // Closed even while the view has no owner: before the kernel denies access it requests the
    // attributes again (fuse_permission), and the daemon thereby detects the first user.
    shown.st_mode = S_IFDIR | 0700;
  } else if (!in_upper && !S_ISLNK(st.st_mode) && !is_lock && !may_read(st)) {
    return shown;
  }
  shown.st_uid = uid.value_or(sys::own_uid());
  shown.st_gid = uid ? gid : sys::own_gid();
  shown.st_mode &= ~static_cast<mode_t>(S_ISVTX);
  // 1: not counted, as in overlayfs and btrfs. Direct answers show the same.
  if (S_ISDIR(st.st_mode)) shown.st_nlink = 1;
  return shown;
}

Job::Job(std::string job_id, std::shared_ptr<const LowerStack> lowers, const EntryMap& entries,
         Counters& counters, NodeTable& nodes, const JobRules& rules)
    : id(std::move(job_id)),
      overlay(std::move(lowers), entries, counters, this,
              {.keep_owner = rules.owners.keep, .has_store_records = !rules.is_plain}),
      filter(id, rules.direct),
      nodes_(nodes),
      rules_(rules) {
  if (rules.is_plain) claim_ = Claim::kTold;  // open to everybody from the start
  if (id == JobId::for_uid(0).view()) {       // root's job from the start
    views_.front() = View{0, 0, {}};
    claim_ = Claim::kTold;
  }
}

LayerRecord Job::wanted_record() const {
  const MutexLock lock(mutex_);
  LayerRecord wanted;
  wanted.job = id;
  wanted.cycle = cycle_;
  wanted.node = node_name();
  if (views_.front().uid) wanted.uid = *views_.front().uid;
  wanted.shared_uids = shared_uids_;
  wanted.vouched = rules_.is_restricted && !refused_;
  wanted.refused = why_refused_;
  wanted.publish = policy_.load();
  wanted.started = started_;
  return wanted;
}

Status Job::ensure_layer(int layers) {
  if (layer) return {};
  if (rules_.is_plain) return overlay.has_layer() ? Status() : Errno(EROFS);
  if (layers < 0) return Errno(EROFS);  // the store is read-only
  CACHESHIM_TRY(taken, Layer::take(layers, wanted_record()));
  layer = std::move(taken);
  settle_trust();
  return open_layer();
}

Status Job::open_layer() {
  CACHESHIM_TRY(upper, layer->open_upper());
  CACHESHIM_TRY(work, layer->open_work());
  overlay.set_layer(std::move(upper), std::move(work));
  return overlay.load_layer();
}

Status Job::use_plain_layer(UniqueFd upper, UniqueFd work) {
  policy_ = PublishPolicy::kNever;
  overlay.set_layer(std::move(upper), std::move(work));
  return overlay.load_layer();
}

void Job::count_change() {
  if (rules_.changes != nullptr) ++*rules_.changes;
}

void Job::begin(const JobClaim& claim, PublishPolicy policy, bool shared_uids) {
  const MutexLock lock(mutex_);
  cycle_ = claim.cycle.view();
  // The environment can only restrict the administrator's setting.
  policy_ = std::min(policy, claim.publish.value_or(policy));
  shared_uids_ = shared_uids;
  started_ = std::time(nullptr);
  open_filter();
  outcome_ = Outcome::kNone;
  a_run_failed = false;
  published_ = {};
  // A job that may not publish then neither blocks other jobs nor waits for them.
  settle_locks();
  touch();
  active_ = true;
  count_change();
}

void Job::adopt(Layer taken, PublishPolicy policy) {
  {
    const MutexLock lock(mutex_);
    const LayerRecord& found = taken.record();
    cycle_ = found.cycle;
    policy_ = std::min(policy, found.publish.value_or(policy));
    shared_uids_ = found.shared_uids;
    started_ = found.started;
    if (found.uid) {
      views_.front().uid = *found.uid;
      claim_ = Claim::kTold;
    }
  }
  layer = std::move(taken);
  settle_trust();
  settle_locks();
  {
    const MutexLock lock(mutex_);
    open_filter();
  }
  touch();
  active_ = true;
  count_change();
}

void Job::open_filter() {
  if (shared_uids_) return;
  const View& view = views_.front();
  filter.open(view.uid.value_or(sys::own_uid()), view.uid ? view.gid : sys::own_gid());
}

PendingReplies Job::finish(Outcome outcome) {
  PendingReplies replies;
  const MutexLock lock(mutex_);
  outcome_ = outcome;
  active_ = false;
  runs = 0;
  postponed_.clear();
  built_.clear();
  processes_.clear();
  for (OnEnd& then : std::exchange(waiting_, {})) {
    replies.add([then = std::move(then), outcome] { then(outcome); });
  }
  filter.close();
  reads.clear();
  count_change();
  return replies;
}

PendingReplies Job::refuse_waits() {
  PendingReplies replies;
  const MutexLock lock(mutex_);
  for (OnEnd& then : std::exchange(waiting_, {})) {
    replies.add([then = std::move(then)] { then(std::nullopt); });
  }
  return replies;
}

void Job::on_end(OnEnd then) {
  {
    const MutexLock lock(mutex_);
    if (active_) {
      waiting_.push_back(std::move(then));
      return;
    }
  }
  then(outcome_);
}

ViewSlot Job::enter(const Caller& caller) {
  touch();
  const MutexLock lock(mutex_);
  note_entered(caller.tid);
  for (std::size_t slot = 0; slot < views_.size(); ++slot) {
    View& view = views_[slot];
    if (view.uid == caller.uid) {
      if (view.gid != caller.gid) view.groups = groups_of(caller.tid);
      if (slot == 0) filter.set_owner(caller.uid, caller.gid);
      view.gid = caller.gid;
      return static_cast<ViewSlot>(slot);
    }
  }
  // Root leaves a view without an owner to the first other user.
  if (caller.uid == 0 && (!views_.front().uid || !shared_uids_)) return 0;
  View mine{caller.uid, caller.gid, groups_of(caller.tid)};
  if (!views_.front().uid) {
    views_.front() = std::move(mine);
    claim_ = Claim::kUntold;
    filter.set_owner(caller.uid, caller.gid);
    return 0;
  }
  if (!shared_uids_) return 0;
  views_.push_back(std::move(mine));
  return static_cast<ViewSlot>(views_.size() - 1);
}

bool Job::begin_telling_claim() {
  Claim untold = Claim::kUntold;
  return claim_.compare_exchange_strong(untold, Claim::kBeingTold);
}

View Job::view(ViewSlot slot) const {
  const MutexLock lock(mutex_);
  return slot < views_.size() ? views_[slot] : views_.front();
}

struct stat Job::show(ViewSlot slot, const struct stat& st, bool in_upper, bool is_root) const {
  const bool is_private_root = is_root && !rules_.is_plain;
  if (!rules_.owners.keep || is_private_root) return view(slot).show(st, in_upper, is_root);
  struct stat shown = st;
  if (!rules_.is_plain && !in_upper && is_closed_lock(st)) shown.st_mode = S_IFREG | 0666;
  if (rules_.owners.shown_uid) shown.st_uid = *rules_.owners.shown_uid;
  if (rules_.owners.shown_gid) shown.st_gid = *rules_.owners.shown_gid;
  return shown;
}

std::size_t Job::view_count() const {
  const MutexLock lock(mutex_);
  return views_.size();
}

bool Job::is_closed_to(uid_t uid) const {
  if (rules_.is_plain || shared_uids_) return false;
  const MutexLock lock(mutex_);
  const auto& owner = views_.front().uid;
  return owner && *owner != uid;
}

bool Job::may_change(uid_t uid) const {
  if (uid == 0) return true;
  const MutexLock lock(mutex_);
  return std::any_of(views_.begin(), views_.end(),
                     [uid](const View& view) { return view.uid == uid; });
}

std::vector<uid_t> Job::users() const {
  std::vector<uid_t> uids;
  const MutexLock lock(mutex_);
  for (const View& view : views_) {
    if (view.uid) uids.push_back(*view.uid);
  }
  return uids;
}

std::string Job::cycle() const {
  const MutexLock lock(mutex_);
  return cycle_;
}

void Job::add_writer(dev_t device, ino_t inode) {
  const MutexLock lock(mutex_);
  ++writers_[{device, inode}];
}

void Job::remove_writer(dev_t device, ino_t inode) {
  const MutexLock lock(mutex_);
  const auto writer = writers_.find({device, inode});
  if (writer == writers_.end() || --writer->second > 0) return;
  writers_.erase(writer);
  settled_.notify_all();
}

bool Job::is_being_written(dev_t device, ino_t inode) {
  const MutexLock lock(mutex_);
  return writers_.contains({device, inode});
}

void Job::postpone(const std::string& entry) {
  const MutexLock lock(mutex_);
  postponed_.insert(entry);
}

// The kernel sends RELEASE after close(2) has returned, so the rename that follows a close may
// overtake it.
bool Job::wait_until_closed(dev_t device, ino_t inode) {
  const auto deadline = std::chrono::steady_clock::now() + kReleaseDelay;
  const MutexLock lock(mutex_);
  while (writers_.contains({device, inode})) {
    if (!settled_.wait_until(mutex_, deadline)) return !writers_.contains({device, inode});
  }
  return true;
}

void Job::begin_publishing() {
  const MutexLock lock(mutex_);
  ++publishing_;
}

void Job::end_publishing() {
  const MutexLock lock(mutex_);
  --publishing_;
  settled_.notify_all();
}

void Job::wait_until_settled() {
  const auto deadline = std::chrono::steady_clock::now() + kReleaseDelay;
  const MutexLock lock(mutex_);
  while (!writers_.empty() && settled_.wait_until(mutex_, deadline)) continue;
  while (publishing_ != 0) settled_.wait(mutex_);  // every task ends
}

std::vector<std::string> Job::take_postponed() {
  const MutexLock lock(mutex_);
  std::vector<std::string> entries(postponed_.begin(), postponed_.end());
  postponed_.clear();
  return entries;
}

void Job::count_published(const PublishReport& report) {
  const MutexLock lock(mutex_);
  published_.entries += report.entries;
  published_.files += report.files;
  published_.bytes += report.bytes;
}

Job::Published Job::published_so_far() const {
  const MutexLock lock(mutex_);
  return published_;
}

void Job::note_built(const std::string& path) {
  const MutexLock lock(mutex_);
  built_.insert(path);
}

bool Job::has_built() const {
  const MutexLock lock(mutex_);
  return !built_.empty();
}

std::vector<std::string> Job::take_built(
    const std::function<bool(const std::string& path)>& is_theirs) {
  std::vector<std::string> taken;
  const MutexLock lock(mutex_);
  std::erase_if(built_, [&](const std::string& path) {
    if (!is_theirs(path)) return false;
    taken.push_back(path);
    return true;
  });
  return taken;
}

// Fast for a known thread, since every READLINK in the mount's root calls this.
void Job::note_entered(pid_t tid) {
  if (tid <= 0) return;
  const auto known = processes_.find(tid);
  if (known != processes_.end()) {
    known->second.seen = ticks_since_boot();
  } else if (const pid_t process = process_of(tid); process > 0) {
    if (processes_.size() >= most_processes_) forget_gone("/proc");
    processes_.emplace(tid, Entered{process, ticks_since_boot()});
  }
}

void Job::forget_gone(const std::string& proc) {
  std::erase_if(processes_, [&](const auto& entered) {
    const auto& [process, seen] = entered.second;
    const auto stat = stat_of(process, proc);
    return !stat || is_dead(*stat) || stat->start_time > seen;
  });
  most_processes_ = std::max(most_processes_, 2 * processes_.size());
}

std::optional<Process> Job::known_process(const std::string& proc) {
  const MutexLock lock(mutex_);
  forget_gone(proc);
  for (const auto& [thread, entered] : processes_) {
    if (const auto stat = stat_of(entered.process, proc)) {
      return Process{entered.process, stat->start_time};
    }
  }
  return std::nullopt;
}

bool Job::note_conflict(const std::string& unit) {
  const MutexLock lock(mutex_);
  return conflicts_.insert(unit).second;
}

bool Job::note_kept(const std::string& unit, const std::string& reason) {
  const MutexLock lock(mutex_);
  if (reason.empty()) return kept_.erase(unit) > 0;
  std::string& known = kept_[unit];
  if (known == reason) return false;
  known = reason;
  return true;
}

std::string Job::why_kept(const std::string& unit) const {
  const MutexLock lock(mutex_);
  const auto kept = kept_.find(unit);
  return kept == kept_.end() ? "" : kept->second;
}

PublishingJob Job::identity() const {
  const MutexLock lock(mutex_);
  return {id, cycle_, views_.front().uid};
}

void Job::published(const std::string& path, const struct stat& base) {
  const NodeIndex directory = nodes_.find_path(view_root, parent_path(path));
  if (directory != 0) nodes_.published(directory, std::string(base_name(path)), base);
}

void Job::copied_up(const std::string& path, const struct stat& upper) {
  if (const NodeIndex node = nodes_.find_path(view_root, path)) nodes_.moved(node, upper, true);
}

}  // namespace cacheshim
