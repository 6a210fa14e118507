// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <optional>

#include "store/base/base_units.h"
#include "store/base/recorded_paths.h"
#include "store/publish/publish_stage.h"
#include "store/sys/sys.h"

// Replaces entries of the base with a job's build: entries that name paths outside this mount
// (EntryRule::paths_in), and entries that jobs keep rejecting (rejected_entries.h).
namespace cacheshim {
namespace {

// Rejections never make the publisher replace a base entry with more files than this.
constexpr std::size_t kMostFiles = 16384;

// A process without cacheshim may be building an incomplete entry in the base. If the entry's files
// have not changed for kQuietSeconds, the publisher assumes that no process is building the entry.
constexpr std::time_t kQuietSeconds = 600;

bool can_complete(const EntryRule& rule, std::string_view name) {
  return rule.completes(name) || rule.completes_alone(name) || rule.completes_at_end(name);
}

// Returns the files of a unit of the base, without scratch names, locks and batons. Returns nothing
// if the files cannot be listed, or if there are more than kMostFiles.
std::optional<std::vector<BaseFile>> list_files(int base, const EntryMap& entries,
                                                const std::string& unit) {
  std::vector<BaseFile> files;
  std::vector<std::string> paths{unit};
  while (!paths.empty()) {  // no recursion: a publisher may create trees of any depth
    const std::string path = std::move(paths.back());
    paths.pop_back();
    const auto object = sys::open_beneath(base, path, O_PATH | O_NOFOLLOW);
    const auto st = object ? sys::stat_fd(object->get()) : object.error();
    if (!st || files.size() + paths.size() > kMostFiles) return std::nullopt;
    if (!S_ISDIR(st->st_mode)) {
      files.push_back({path, st->st_uid});
      continue;
    }
    const auto names = sys::list_dir(object->get());
    if (!names) return std::nullopt;
    for (const sys::DirEntry& name : *names) {
      std::string child = join_path(path, name.name);
      if (!entries.is_beside_entry(child)) paths.push_back(std::move(child));
    }
  }
  return files;
}

}  // namespace

// Whether the file at `path`, relative to the directory `root`, is of a kind that contains paths (EntryRule::paths_in)
// and names a path outside its cache at the recorded mount path. Returns false if the store was never mounted and so
// has no recorded mount path: the daemon that mounts it will treat an entry with other paths as absent.
Result<bool> Publisher::has_foreign_paths(int root, const std::string& path) const {
  const auto ref = entries_.find(path);
  if (!ref || !ref->rule->holds_paths(base_name(path)) || store_.mount_path().empty()) return false;
  CACHESHIM_TRY(fd, sys::open_beneath(root, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  return names_path_outside(fd.get(), join_path(store_.mount_path(), ref->profile->name));
}

// Whether the base's entry names paths outside this mount. If so, the publisher treats the entry as absent.
bool Publisher::names_foreign_paths(const std::string& unit) const {
  const auto directory =
      sys::open_beneath(store_.base(), unit, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!directory) return false;
  const auto entries = sys::list_dir(directory->get());
  return entries && std::any_of(entries->begin(), entries->end(), [&](const auto& entry) {
           const auto foreign = has_foreign_paths(store_.base(), join_path(unit, entry.name));
           return foreign && *foreign;
         });
}

// Links the lock files of the replaced entry into its replacement, because processes may hold locks
// on them.
Status Publisher::carry_locks(const Stage& stage) const {
  const auto is_directory =
      sys::open_beneath(stage.directory(), Stage::kTree, O_PATH | O_DIRECTORY);
  if (!is_directory) return {};  // the entry is a single file, without lock files
  CACHESHIM_TRY(before, sys::open_beneath(store_.base(), stage.unit, O_RDONLY | O_DIRECTORY));
  CACHESHIM_TRY(after, sys::open_beneath(stage.directory(), Stage::kTree, O_RDONLY | O_DIRECTORY));
  CACHESHIM_TRY(entries, sys::list_dir(before.get()));
  for (const sys::DirEntry& entry : entries) {
    if (entry.type != DT_REG || !entries_.is_lock(join_path(stage.unit, entry.name))) continue;
    CACHESHIM_CHECK(sys::link_at(before.get(), entry.name, after.get(), entry.name));
  }
  return {};
}

void Publisher::record_replaced(const Stage& stage, const std::string& unit) const {
  AuditRecord replaced;
  replaced.event = AuditRecord::Event::kEvict;
  replaced.unit = unit;
  replaced.reason = stage.why_replaces;
  // If this fails, record() most likely also fails to append its own record, and logs that.
  (void)store_.audit().append(std::move(replaced));
}

// Whether the layer has its own version of a file that completes the base's entry.
bool Publisher::has_rebuilt_completing_file(const Stage& stage, const std::string& unit) const {
  const auto ref = entries_.find(unit);
  if (stage.is_new || !ref || !ref->counts_rebuilds()) return false;
  return std::any_of(stage.files.begin(), stage.files.end(), [&](const StagedFile& file) {
    const std::string path = stage.path_of(file);
    if (!ref->rule->needs_no_name() && !can_complete(*ref->rule, base_name(path))) return false;
    return static_cast<bool>(sys::open_beneath(store_.base(), path, O_PATH | O_NOFOLLOW));
  });
}

// Whether an interrupted process left the base's entry incomplete: no file of the entry can complete it, and none of
// its files has changed for kQuietSeconds. No reader opens an incomplete entry, and its files cannot be replaced one by
// one. So note_rebuild() records the rebuild of an incomplete entry although the job has not opened the entry.
bool Publisher::is_stuck(const std::string& unit) const {
  const auto ref = entries_.find(unit);
  if (!ref || !ref->counts_rebuilds() || !ref->rule->is_directory() || ref->rule->needs_no_name()) {
    return false;
  }
  const auto directory =
      sys::open_beneath(store_.base(), unit, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  const auto names = directory ? sys::list_dir(directory->get()) : directory.error();
  if (!names) return false;
  const std::time_t quiet = std::time(nullptr) - kQuietSeconds;
  return std::all_of(names->begin(), names->end(), [&](const sys::DirEntry& name) {
    const auto st = sys::stat_at(directory->get(), name.name);
    return st && st->st_mtime < quiet && !can_complete(*ref->rule, name.name);
  });
}

// If the job has rebuilt the base's entry, even with equal files, records the rebuild. Returns true
// if the rebuild is recorded, by this call or an earlier one.
bool Publisher::note_rebuild(const Stage& stage, const std::string& unit, bool is_equal,
                             PublishHooks& hooks) {
  if (stage.is_new) return false;
  const BaseVersion version = version_of(store_.base(), unit);
  PublishingJob by = hooks.identity();
  const bool has_opened = has_rebuilt_completing_file(stage, unit) && hooks.has_rejected(unit);
  if (!has_opened) {
    if (is_equal || !is_stuck(unit)) return false;
    // The daemon tries to publish again when the job ends: do not count the rebuild twice.
    if (rejected_.has_noted(unit, version, by.job)) return true;
  }
  rejected_.note({.unit = unit,
                  .version = version,
                  .job = std::move(by.job),
                  .uid = by.uid.value_or(0),
                  .is_equal = is_equal,
                  .is_published = hooks.may_replace()});
  hooks.settle_rejected(unit);
  return true;
}

void Publisher::note_unpublished_rebuild(const std::string& unit, PublishHooks& hooks) {
  PublishingJob by = hooks.identity();
  rejected_.note({.unit = unit,
                  .version = version_of(store_.base(), unit),
                  .job = std::move(by.job),
                  .uid = by.uid.value_or(0),
                  .is_published = false});
  hooks.settle_rejected(unit);
}

// Only a whole entry may replace the base's entry: if the job's view still shows a file of the base's
// entry, the job's build may need that file. Entries of several files are not replaced, because no
// single rename could replace them.
bool Publisher::may_replace(const Overlay& overlay, const Stage& stage, const std::string& unit,
                            const PublishHooks& hooks) {
  if (stage.is_group || !hooks.may_replace()) return false;
  const auto files = list_files(store_.base(), entries_, unit);
  if (!files) return false;
  {
    const ReaderLock lock(overlay.mutex());
    const auto shows = [&](const BaseFile& file) REQUIRES_SHARED(overlay.mutex()) {
      const auto found = overlay.find(file.path);
      return found ? !found->in_upper : !found.failed_with(ENOENT);
    };
    if (std::any_of(files->begin(), files->end(), shows)) return false;
  }
  return rejected_.may_replace(unit, stage.base, *files);
}

// Replaces the base's entry. Errors: ESTALE if the base no longer has the version with which `rejected` was compared.
Result<PublishReport> Publisher::replace(Overlay& overlay, const Stage& rejected,
                                         const std::string& unit, PublishHooks& hooks) {
  CACHESHIM_TRY(stage, begin_stage(overlay, unit, rejected.is_wanted));
  stage.why_replaces = "its readers have rejected it";
  CACHESHIM_TRY(is_staged, stage_files(stage, hooks));
  if (!is_staged || stage.files.empty() || stage.base != rejected.base) return Errno(ESTALE);
  CACHESHIM_TRY(report, complete(overlay, stage, unit, hooks));
  rejected_.note_replaced(unit);
  spdlog::warn("jobs have rejected '{}' and built it anew: the build of job '{}' replaces it", unit,
               hooks.identity().job);
  return report;
}

}  // namespace cacheshim
