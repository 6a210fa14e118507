// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fuse/jobs/caller.h"
#include "fuse/jobs/entry_reads.h"
#include "fuse/jobs/owner_rule.h"
#include "fuse/jobs/view_filter.h"
#include "fuse/nodes/node_table.h"
#include "fuse/requests/pending_replies.h"
#include "store/layer/layer.h"
#include "store/overlay/overlay.h"
#include "store/profiles/entry_map.h"
#include "store/publish/publisher.h"
#include "store/sys/mutex.h"
#include "store/sys/process.h"

namespace cacheshim {

// One uid's view of a job: the owner that its files are shown with.
struct View {
  std::optional<uid_t> uid;  // empty: only root has used it
  gid_t gid = 0;
  std::vector<gid_t> groups;

  // Returns the attributes that a view shows for an object (owner=squash): the view's own user,
  // without sticky bits. If the mode of a base object denies access to this uid, the object keeps
  // its real owner and stays inaccessible.
  struct stat show(const struct stat& st, bool in_upper, bool is_root) const;

 private:
  bool may_read(const struct stat& st) const;
};

// The settings of a mount for its jobs.
struct JobRules {
  OwnerRule owners;
  // The one job of a plain overlay: its view has no owner, and its root is an ordinary directory.
  bool is_plain = false;
  // A writable descriptor of the base, whose lock files a publishing job uses; or -1.
  int lock_base = -1;
  int lock_staging = -1;                    // for LockFiles::share()
  const LockAccess* lock_access = nullptr;  // of these
  // The shared memory that tells processes what they may read from the base directly; null: none.
  const DirectAccess* direct = nullptr;
  // Counts beginnings and ends of all jobs.
  std::atomic<std::uint64_t>* changes = nullptr;
  // Not everybody may publish: the writers of each layer are checked.
  bool is_restricted = false;
};

// A job of this mount: its layer, its views, and their current use. Never freed while the mount
// lives, so that nodes can point at it. Thread-safe.
class Job final : public PublishHooks, private OverlayObserver {
 public:
  Job(std::string id, std::shared_ptr<const LowerStack> lowers, const EntryMap& entries,
      Counters& counters, NodeTable& nodes, const JobRules& rules = {});

  const std::string id;
  Overlay overlay;
  NodeIndex view_root = 0;

  // ---- The layer comes with the first change.
  std::optional<Layer> layer GUARDED_BY(overlay.mutex());
  Status ensure_layer(int layers) REQUIRES(overlay.mutex());
  Status open_layer() REQUIRES(overlay.mutex());  // the overlay continues with `layer`
  // For the plain overlay: its layer is passed once, here, and no record is kept; or it has none,
  // and ensure_layer() returns EROFS.
  Status use_plain_layer(UniqueFd upper, UniqueFd work) REQUIRES(overlay.mutex());

  bool is_active() const { return active_.load(); }
  void begin(const JobClaim& claim, PublishPolicy policy, bool shared_uids);
  // Takes up a layer that an earlier daemon left; open_layer() is the caller's next step.
  void adopt(Layer taken, PublishPolicy policy) REQUIRES(overlay.mutex());
  // What begin() has set is over. The layer must have been given up before. Returns the replies to those who wait.
  PendingReplies finish(Outcome outcome);
  // Calls `then` once, when the job ends; at once if it is not active. Passes nothing if the job
  // continues but no process may wait for it any more.
  using OnEnd = std::function<void(std::optional<Outcome>)>;
  void on_end(OnEnd then) EXCLUDES(mutex_);
  PendingReplies refuse_waits();

  bool shares_uids() const { return shared_uids_.load(); }
  // The effective policy, and the policy that would apply if the job might publish.
  PublishPolicy policy() const { return refused_ ? PublishPolicy::kNever : wanted_policy(); }
  PublishPolicy wanted_policy() const { return policy_.load(); }
  // Ensures that no daemon ever publishes the layer's contents from now on. Call before the change
  // that causes this. Errors: those of writing the record, which comes first.
  Status refuse(const std::string& why) EXCLUDES(overlay.mutex());
  bool is_refused() const { return refusal_is_kept_; }
  // With the layer goes what speaks against it.
  void forget_layer() REQUIRES(overlay.mutex());
  bool may_publish() const { return !rules_.is_plain && policy() != PublishPolicy::kNever; }
  // Returns the view of this uid, and claims it if it has no owner. Returns nothing for a uid that
  // the job is closed to: that uid then sees the first view, whose mode denies access.
  ViewSlot enter(const Caller& caller);
  // Whether the job has an owner whose layer this uid must not be served. This includes root.
  bool is_closed_to(uid_t uid) const;
  // Ensures that the layer's record names its owner, durably. Call before the first answer to the
  // owner, with no lock held. Takes no time if there is no layer, or if the owner is already
  // recorded.
  void keep_claim() EXCLUDES(overlay.mutex());
  View view(ViewSlot slot) const;
  // Returns the attributes that the view shows for an object; `is_root`: the view's root.
  struct stat show(ViewSlot slot, const struct stat& st, bool in_upper, bool is_root) const;
  // Whether its view belongs to one uid, the first one that uses it.
  bool has_private_views() const { return !rules_.is_plain; }
  std::size_t view_count() const;
  // Whether a user other than root has used the job.
  bool is_claimed() const { return claim_ != Claim::kFree; }
  // Whether the kernel's cached attributes of the first view, which may show root, have been
  // invalidated since.
  bool is_claim_told() const { return claim_ == Claim::kTold; }
  // Returns true if the caller must do that invalidation and then report it.
  bool begin_telling_claim();
  void end_telling_claim() { claim_ = Claim::kTold; }
  bool may_change(uid_t uid) const;  // the job itself: its own user, and root
  std::vector<uid_t> users() const;  // the owners of views, without root

  // Counts descriptors that may write to a file, from open to RELEASE. FLUSH does not end the
  // count, since a shell closes a duplicate before the first byte is written.
  void add_writer(dev_t device, ino_t inode);
  void remove_writer(dev_t device, ino_t inode);
  // Publishing that has begun and not ended.
  void begin_publishing();
  void end_publishing();
  // What the job has published since it began.
  struct Published {
    std::uint64_t entries = 0;
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;
  };
  void count_published(const PublishReport& report);
  Published published_so_far() const;
  // Waits for that, and for closes in progress, so that all effects of the job's processes before
  // their exit are complete. Gives up after a while if a file stays open.
  void wait_until_settled() EXCLUDES(mutex_);
  // Entries that were complete while one of their files was still open for writing.
  void postpone(const std::string& entry);
  std::vector<std::string> take_postponed();
  // Files that were created in entries that are built under a lock; the process that releases the
  // lock takes them. `is_theirs` must take no lock.
  void note_built(const std::string& path);
  bool has_built() const;
  std::vector<std::string> take_built(
      const std::function<bool(const std::string& path)>& is_theirs);

  // The shadow filter for the processes of the view. Only for one user's view: another user would
  // be shown other owners.
  ViewFilter filter;

  EntryReads reads;

  Mutex end_mutex{LockRank::kJobEnd};  // held by the thread that ends the job
  std::atomic<int> open_files{0};
  std::atomic<int> runs{0};  // running `cacheshim run` commands
  std::atomic<bool> a_run_failed{false};
  void touch() { last_use_ = std::chrono::steady_clock::now(); }
  std::chrono::steady_clock::time_point last_use() const { return last_use_; }
  // Returns a living process that has entered a view, if there is any; forgets those that have
  // exited. `proc`: as for stat_of().
  std::optional<Process> known_process(const std::string& proc = "/proc");

  std::time_t started() const { return started_.load(); }
  Outcome outcome() const { return outcome_.load(); }
  std::string cycle() const;

  bool is_being_written(dev_t device, ino_t inode) override;
  bool wait_until_closed(dev_t device, ino_t inode) override;
  bool note_conflict(const std::string& unit) override;
  bool note_kept(const std::string& unit, const std::string& reason) override;
  std::string why_refused() const override;
  PublishingJob identity() const override;
  bool has_rejected(const std::string& unit) override { return reads.has_rejected(unit); }
  void settle_rejected(const std::string& unit) override { reads.settle(unit); }
  bool may_replace() const override { return policy() == PublishPolicy::kComplete; }
  // Returns the reason why the last attempt did not publish the unit; "" if there was none, or if
  // it is published.
  std::string why_kept(const std::string& unit) const;
  void published(const std::string& path, const struct stat& base) override;

 private:
  void copied_up(const std::string& path, const struct stat& upper) override;
  void shadows(const std::string& path, bool tree) override { filter.add(path, tree); }
  void open_filter() REQUIRES(mutex_);
  LayerRecord wanted_record() const;
  void count_change();
  void set_refused(const std::string& why);
  Status keep_refusal() REQUIRES(overlay.mutex());
  void settle_trust() REQUIRES(overlay.mutex());
  void settle_locks();

  enum class Claim : std::uint8_t { kFree, kUntold, kBeingTold, kTold };

  NodeTable& nodes_;
  const JobRules rules_;
  std::atomic<bool> active_{false};
  std::atomic<bool> shared_uids_{false};
  std::atomic<Claim> claim_{Claim::kFree};
  std::atomic<PublishPolicy> policy_{PublishPolicy::kComplete};
  std::atomic<bool> refused_{false};
  std::atomic<bool> refusal_is_kept_{false};  // recorded, or there is no layer
  std::atomic<std::time_t> started_{0};
  std::atomic<Outcome> outcome_{Outcome::kNone};
  std::atomic<std::chrono::steady_clock::time_point> last_use_{};
  mutable Mutex mutex_{LockRank::kJob};
  std::string cycle_ GUARDED_BY(mutex_) = "0";
  std::string why_refused_ GUARDED_BY(mutex_);
  std::vector<View> views_ GUARDED_BY(mutex_){View{}};
  std::map<std::pair<dev_t, ino_t>, int> writers_ GUARDED_BY(mutex_);
  int publishing_ GUARDED_BY(mutex_) = 0;
  Published published_ GUARDED_BY(mutex_);
  CondVar settled_;  // a writer has closed, or publishing has ended
  std::set<std::string> postponed_ GUARDED_BY(mutex_);
  std::set<std::string> built_ GUARDED_BY(mutex_);
  // Counted once an entry, however often it is tried.
  std::set<std::string> conflicts_ GUARDED_BY(mutex_);
  std::map<std::string, std::string> kept_ GUARDED_BY(mutex_);  // units and reasons
  struct Entered {
    pid_t process;
    // clock ticks since boot: a process that started later has reused the number
    std::uint64_t seen;
  };
  void note_entered(pid_t tid) REQUIRES(mutex_);
  void forget_gone(const std::string& proc) REQUIRES(mutex_);
  std::map<pid_t, Entered> processes_ GUARDED_BY(mutex_);  // by thread
  // Those that have ended are forgotten then.
  std::size_t most_processes_ GUARDED_BY(mutex_) = 4096;
  std::vector<OnEnd> waiting_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
