// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/counters.h"
#include "common/result.h"
#include "store/base/store.h"
#include "store/overlay/overlay.h"
#include "store/profiles/entry_map.h"
#include "store/publish/publish_hooks.h"
#include "store/publish/publish_types.h"
#include "store/publish/rejected_entries.h"
#include "store/publish/unit_locks.h"
#include "store/threads/mutex.h"
#include "store/threads/slices.h"

// Publishing: moves a job's complete entries from its layer into the base, one at a time.
//
// The publisher compares the files with the base and stages them beside it: as a hard link of the layer's file or, if
// the file has other names or the base is on another file system, as a copy. It computes their digests and syncs them.
// Then commit() checks, under the unit's lock, that the base has not changed since the comparison and, under
// Overlay::mutex(), that no process has changed the layer's files or can write to them. It adds a new entry by one
// rename of the whole directory. It adds files to an existing entry only if all files that both have are equal, and
// adds the completing file last. So the first writer wins; publish_replace.cc has the exceptions. Comparing, staging
// and reading files may take a long time. Meanwhile, another job waits only if it publishes the same unit, and then
// only for a limited time (UnitTurns).
namespace cacheshim {

class Publisher {
 public:
  // `store`, `entries` and `counters` must outlive the publisher. Thread-safe.
  Publisher(const Store& store, const EntryMap& entries, Counters& counters)
      : store_(store), entries_(entries), counters_(counters), rejected_(store, counters) {}

  // Makes all published files readable for all users, whatever their modes were. Call before publishing begins.
  void open_all_files() { opens_all_files_ = true; }
  RejectedEntries& rejected() { return rejected_; }
  const RejectedEntries& rejected() const { return rejected_; }

  // Returns the unit that the event `arrival` at `path` has completed; "" if there is none.
  std::string completed_entry(const Overlay& overlay, const std::string& path,
                              Arrival arrival) const EXCLUDES(overlay.mutex());
  // Whether the layer's part of an entry is complete. Considers only names. With `at_end`, a name that matches
  // EntryRule::complete_at_end also completes the entry.
  bool is_complete(const Overlay& overlay, const EntryRef& ref, bool at_end) const
      REQUIRES_SHARED(overlay.mutex());
  // Whether the base has the entry as a directory, and the view shows the base's version of a file that
  // completes the entry. A file that matches `complete_single` need not be the entry's only file. If the
  // rule names no files that complete an entry, any entry of the base is complete.
  bool is_complete_in_base(const Overlay& overlay, const EntryRef& ref) const
      REQUIRES_SHARED(overlay.mutex());
  // Publishes one unit of the layer: an entry (EntryRef::unit()), or an object that belongs to no entry. If publishing
  // fails, reports `incomplete`, and the files stay in the layer. Also reports `busy` if a file is open for writing,
  // and `is_full` if the store has no room (the caller logs this). Logs any other reason once, unless the unit keeps
  // changing, the job may not publish, or `is_wanted` returns false.
  PublishReport publish(Overlay& overlay, const std::string& unit, PublishHooks& hooks, const IsWanted& is_wanted = {})
      EXCLUDES(overlay.mutex());
  // Records that a job has rejected the base's entry. Call this if the job may not publish, or not yet.
  void note_unpublished_rebuild(const std::string& unit, PublishHooks& hooks);
  // If the base has every file of the layer's part of a unit, with the same bytes, removes this part from the layer.
  // The view then shows the base's files. Adds nothing to the base.
  PublishReport drop_copies(Overlay& overlay, const std::string& unit, PublishHooks& hooks)
      EXCLUDES(overlay.mutex());
  // Adds another machine's unit to the base. `staged`: an open directory on the base's file system that contains the
  // unit's files at their paths in the store, owned by the service account and synced; no other process changes them.
  // `by`: the publishing job, for the audit record. Returns false, and leaves the files staged, if the base has the
  // unit already: the first writer wins. Errors: EINVAL for a unit that, by the profiles, must not be published early;
  // EXDEV if one of its files names a path outside the mount (EntryRule::paths_in).
  Result<bool> adopt(int staged, const std::string& unit, std::vector<AuditFile> files,
                     const PublishingJob& by);
  // Records and counts that the unit stays in the layer because its job may not publish.
  PublishReport refuse(const std::string& unit, PublishHooks& hooks);

  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;
  // Publishes all complete units; with `job_succeeded` also the units whose completeness is unknown: entries whose
  // names do not show whether they are complete (EntryRule::says_when_complete()), entries of a profile that is a
  // guess, and files that belong to no entry or no known cache. Stops when `is_wanted` returns false; units that are
  // not published by then stay in the layer.
  PublishReport publish_all(Overlay& overlay, PublishHooks& hooks, bool job_succeeded,
                            const Progress& progress, const IsWanted& is_wanted = {})
      EXCLUDES(overlay.mutex());
  // Returns the plan of publish_all() by unit, and changes nothing. If `is_wanted` returns false, stops and returns an
  // incomplete plan.
  std::vector<UnitPlan> plan_all(Overlay& overlay, PublishHooks& hooks, bool job_succeeded,
                                 const Progress& progress, const IsWanted& is_wanted = {})
      EXCLUDES(overlay.mutex());
  // Returns why the unit of `ref` may not be published yet, as text for messages; "" if it may. Considers only the
  // names of the layer's files and the profile's rules.
  std::string why_not_due(const Overlay& overlay, const EntryRef& ref, bool job_succeeded) const
      EXCLUDES(overlay.mutex());
  // Whether this file of a layer is used only as a lock and is therefore never published. The file must be a `*.lock`
  // in a cache without a profile, or a baton (EntryMap::may_become_lock()). In addition, the file must be empty, or it
  // must be small and the base must have an empty file at its path.
  bool is_lock_by_use(const std::string& path, const struct stat& st) const;

 private:
  struct StagedFile;
  struct Stage;

  Result<PublishReport> try_publish(Overlay& overlay, const std::string& unit, PublishHooks& hooks,
                                    const IsWanted& is_wanted, bool& is_rejected);
  Result<PublishReport> complete(Overlay& overlay, Stage& stage, const std::string& unit,
                                 PublishHooks& hooks);
  Result<Stage> begin_stage(const Overlay& overlay, const std::string& unit,
                            const IsWanted& is_wanted) EXCLUDES(overlay.mutex());
  static void renew_base(const Overlay& overlay, const Stage& stage);
  std::shared_ptr<Mutex> staging_lock(const Overlay& overlay, const std::string& unit);
  bool base_has_all(const Stage& stage) const;
  bool opens_all(int upper, const std::string& unit) const;
  static bool is_open_to_readers(const Stage& stage, const struct stat& st);
  static std::string why_kept(Errno error);
  Status collect_unit(Stage& stage, const std::string& unit) const;
  Status collect(Stage& stage, const std::string& rest,
                 std::vector<std::string>& directories) const;
  Status collect_directory(Stage& stage, const std::string& rest,
                           std::vector<std::string>& directories) const;
  Status collect_file(Stage& stage, const std::string& rest, int object,
                      const struct stat& st) const;
  bool may_point_to(std::string_view path, std::string_view target) const;
  Result<bool> stage_files(Stage& stage, PublishHooks& hooks) const;
  Result<bool> stage_file(Stage& stage, StagedFile& file, PublishHooks& hooks) const;
  Status sync(std::span<const Stage> stages) const;

  // ---- publish_commit.cc
  Status commit(Overlay& overlay, const Stage& stage, const std::string& unit, PublishHooks& hooks)
      EXCLUDES(overlay.mutex());
  Status commit_with_unit_lock(Overlay& overlay, const Stage& stage, PublishHooks& hooks) const
      EXCLUDES(overlay.mutex());
  bool is_base_unchanged(const Stage& stage) const;
  bool is_layer_unchanged(const Overlay& overlay, const Stage& stage, PublishHooks& hooks) const
      REQUIRES_SHARED(overlay.mutex());
  Status add_to_base(const Stage& stage) const;
  Status ensure_base_parents(const std::string& path) const;
  void drop_from_layer(Overlay& overlay, const Stage& stage, PublishHooks& hooks) const
      REQUIRES(overlay.mutex());
  PublishReport account(const Stage& stage) const;
  void record(const Stage& stage, const std::string& unit, const PublishHooks& hooks) const;

  // ---- publish_replace.cc
  Result<bool> has_foreign_paths(int root, const std::string& path) const;
  bool names_foreign_paths(const std::string& unit) const;
  Status carry_locks(const Stage& stage) const;
  void record_replaced(const Stage& stage, const std::string& unit) const;
  bool has_rebuilt_completing_file(const Stage& stage, const std::string& unit) const;
  bool is_stuck(const std::string& unit) const;
  bool note_rebuild(const Stage& stage, const std::string& unit, bool is_equal,
                    PublishHooks& hooks);
  bool may_replace(const Overlay& overlay, const Stage& stage, const std::string& unit,
                   const PublishHooks& hooks) EXCLUDES(overlay.mutex());
  Result<PublishReport> replace(Overlay& overlay, const Stage& rejected, const std::string& unit,
                                PublishHooks& hooks);

  // ---- publish_select.cc
  bool has_publishable_file(const Overlay& overlay, const std::string& directory) const
      REQUIRES_SHARED(overlay.mutex());
  bool is_own_lock(const EntryRef& ref, std::string_view path) const;
  bool is_complete_directory(const Overlay& overlay, const EntryRef& ref, bool at_end) const
      REQUIRES_SHARED(overlay.mutex());
  bool may_complete(const EntryRef& ref, const std::string& path, Arrival arrival) const;
  bool is_due(const Overlay& overlay, const EntryRef& ref, bool job_succeeded) const
      REQUIRES_SHARED(overlay.mutex());
  struct Candidate {
    std::string unit;
    bool is_due;
  };
  std::vector<Candidate> units_of(const Overlay& overlay, bool job_succeeded) const
      EXCLUDES(overlay.mutex());

  // ---- publish_batch.cc
  std::optional<Stage> try_stage_new(const Overlay& overlay, const std::string& unit,
                                     PublishHooks& hooks, const IsWanted& is_wanted);
  PublishReport publish_batch(Overlay& overlay, std::vector<Stage>& batch, PublishHooks& hooks,
                              const IsWanted& is_wanted);

  // ---- publish_plan.cc
  UnitPlan plan(Overlay& overlay, const Candidate& candidate, PublishHooks& hooks,
                const IsWanted& is_wanted);
  Result<UnitPlan> try_plan(Overlay& overlay, const std::string& unit, PublishHooks& hooks,
                            const IsWanted& is_wanted);

  const Store& store_;
  const EntryMap& entries_;
  Counters& counters_;
  RejectedEntries rejected_;
  bool opens_all_files_ = false;
  UnitLocks staging_locks_{LockRank::kStagedUnit};  // a lock for each unit of each job; see staging_lock()
  UnitLocks commit_locks_{LockRank::kCommittedUnit};
  UnitTurns turns_;
  std::atomic<unsigned> stage_count_{0};
};

}  // namespace cacheshim
