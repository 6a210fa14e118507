// SPDX-License-Identifier: Apache-2.0
#include "store/publish/publisher.h"

#include <fcntl.h>
#include <time.h>
#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "store/overlay/layer_upkeep.h"
#include "store/publish/publish_stage.h"
#include "store/sys/digest.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

// The maximum number of attempts to publish a unit that changes during each attempt. After the last
// one, the unit stays in the layer.
constexpr int kMostPublishAttempts = 3;

// The longest time that a job waits for another job that publishes the same unit. Most jobs publish a
// unit in a few ms.
constexpr std::chrono::milliseconds kLongestTurn{100};
// From this number of files on, one syncfs(2) is faster than an fsync(2) per file.
constexpr std::size_t kSyncWholeFrom = 256;

// Whether a symlink's target contains no "..", so that it leads downwards from any directory.
bool leads_down(std::string_view target) {
  while (!target.empty()) {
    if (take_component(target) == "..") return false;
  }
  return true;
}

// Waits until no process can write to the file; returns false after 50 ms. After the last handle is closed, a process
// may still have a writable mapping. The kernel also keeps its own descriptor of a passthrough file for a short time
// after it has reported the close.
bool wait_until_unwritable(int fd) {
  constexpr int kMostChecks = 50;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int checks = 0; checks < kMostChecks; ++checks) {
    if (!sys::can_be_written(fd)) return true;
    (void)::nanosleep(&kPause, nullptr);  // an interrupted pause is harmless
  }
  return false;
}

}  // namespace

std::string Publisher::why_kept(Errno error) {
  if (error.code() == EBUSY) return "a file of it is open for writing";
  if (error.code() == EACCES) {
    return "a file of it may only be read by its owner or group (mode, umask)";
  }
  if (error.code() == EOVERFLOW) return "a file of it is larger than 1 TiB";
  if (error.code() == EFBIG) return "a file that names paths is too large, or nested too deeply";
  if (error.code() == EPERM) {
    return "it has a path or a symlink that leads out of its cache at the recorded mount path";
  }
  if (error.code() == ENAMETOOLONG) {
    return fmt::format("it has a path of more than {} directories or {} bytes", kMostBaseDepth,
                       kMostBasePathBytes);
  }
  return std::strerror(error.code());
}

PublishReport& PublishReport::operator+=(const PublishReport& other) {
  entries += other.entries;
  files += other.files;
  bytes += other.bytes;
  conflicts += other.conflicts;
  incomplete += other.incomplete;
  refused += other.refused;
  busy = busy || other.busy;
  is_full = is_full || other.is_full;
  paths.insert(paths.end(), other.paths.begin(), other.paths.end());
  copies.insert(copies.end(), other.copies.begin(), other.copies.end());
  return *this;
}

PublishReport Publisher::refuse(const std::string& unit, PublishHooks& hooks) {
  if (hooks.note_why_unpublished(unit, "the job may not publish: " + hooks.why_refused())) {
    counters_.publish_refused.fetch_add(1);
  }
  PublishReport report;
  report.refused = 1;
  return report;
}

PublishReport Publisher::publish(Overlay& overlay, const std::string& unit, PublishHooks& hooks,
                                 const IsWanted& is_wanted) {
  if (!hooks.why_refused().empty()) return refuse(unit, hooks);
  const auto staging = staging_lock(overlay, unit);
  const MutexLock lock(*staging);
  const UnitTurns::Turn turn(turns_, unit, kLongestTurn);
  bool busy = false;
  bool is_full = false;
  bool is_rejected = false;
  for (int attempt = 0; attempt < kMostPublishAttempts; ++attempt) {
    Result<PublishReport> report = try_publish(overlay, unit, hooks, is_wanted, is_rejected);
    if (report) {
      if (report->conflicts == 0) (void)hooks.note_why_unpublished(unit, "");
      return *std::move(report);
    }
    if (report.failed_with(ESTALE)) continue;  // the unit has changed while it was staged
    if (report.failed_with(ECANCELED)) break;  // the caller no longer wants the result
    if (!hooks.why_refused().empty()) return refuse(unit, hooks);
    const bool is_news = hooks.note_why_unpublished(unit, why_kept(report.error()));
    const bool is_refused = report.failed_with(EPERM) || report.failed_with(EACCES);
    if (is_news && is_refused) counters_.publish_refused.fetch_add(1);
    busy = report.failed_with(EBUSY);  // open for writing: the last close causes a new attempt
    is_full = report.failed_with(ENOSPC) || report.failed_with(EDQUOT);
    if (is_news && !busy && !is_full) {
      spdlog::warn("cannot publish '{}': {}; it stays in its job's layer", unit,
                   why_kept(report.error()));
    }
    break;
  }
  PublishReport nothing;
  nothing.incomplete = 1;
  nothing.busy = busy;
  nothing.is_full = is_full;
  return nothing;
}

// Errors: ESTALE if the unit changed during the attempt, EBUSY if it is open for writing, EPERM if it contains an
// object that must not be published, EACCES if its job may not publish or not all users may read its files, EOVERFLOW
// if a file is too large, ECANCELED (slices.h), otherwise those of the system calls. Sets `is_rejected` if it records
// that the job has rejected the base's entry; does not reset what an earlier attempt has set.
Result<PublishReport> Publisher::try_publish(Overlay& overlay, const std::string& unit,
                                             PublishHooks& hooks, const IsWanted& is_wanted,
                                             bool& is_rejected) {
  CACHESHIM_TRY(stage, begin_stage(overlay, unit, is_wanted));
  if (stage.files.empty()) return PublishReport{};
  CACHESHIM_TRY(agrees_with_base, stage_files(stage, hooks));
  const bool is_rebuild = has_rebuilt_completing_file(stage, unit);
  is_rejected = is_rejected || note_rebuild(stage, unit, agrees_with_base, hooks);
  PublishReport report;
  if (agrees_with_base) {
    CACHESHIM_TRY(published, complete(overlay, stage, unit, hooks));
    report = std::move(published);
  } else if (is_rejected && may_replace(overlay, stage, unit, hooks)) {
    return replace(overlay, stage, unit, hooks);
  } else {
    (void)hooks.note_why_unpublished(unit, kOtherVersion);
    if (hooks.note_conflict(unit)) counters_.publish_conflicts.fetch_add(1);
    report.conflicts = 1;
  }
  report.is_unread_rebuild = !is_rejected && is_rebuild;
  return report;
}

Result<PublishReport> Publisher::complete(Overlay& overlay, Stage& stage, const std::string& unit,
                                          PublishHooks& hooks) {
  CACHESHIM_CHECK(stage.add_digests());
  CACHESHIM_CHECK(stage.seal(overlay));
  CACHESHIM_CHECK(sync({&stage, 1}));
  CACHESHIM_CHECK(commit(overlay, stage, unit, hooks));
  return account(stage);
}

// Makes a stage and lists the unit's files in it; lists no files if there is no layer.
Result<Publisher::Stage> Publisher::begin_stage(const Overlay& overlay, const std::string& unit,
                                                const IsWanted& is_wanted) {
  const auto ref = entries_.find(unit);
  const bool is_group = ref && ref->rule->files.size() > 1;
  CACHESHIM_TRY(stage, Stage::make(store_.staging(), stage_count_.fetch_add(1),
                                   is_group ? std::string(parent_path(unit)) : unit));
  stage.is_group = is_group;
  stage.is_wanted = is_wanted;
  {
    const ReaderLock lock(overlay.mutex());
    if (!overlay.has_layer()) return stage;
    CACHESHIM_TRY(upper, sys::open_beneath(overlay.upper(), "", O_PATH | O_DIRECTORY));
    stage.upper = std::move(upper);
  }
  CACHESHIM_CHECK(collect_unit(stage, unit));
  renew_base(overlay, stage);
  return stage;
}

// If other machines can change the base, asks the file server again whether the base has the unit and its files.
void Publisher::renew_base(const Overlay& overlay, const Stage& stage) {
  ServerMisses* const misses = overlay.state.lowers->server_misses();
  if (misses == nullptr) return;
  const auto each_path = [&](auto&& visit) {
    visit(stage.unit);
    for (const StagedFile& file : stage.files) visit(stage.path_of(file));
  };
  each_path([&](const std::string& path) { misses->expect(path); });
  each_path([&](const std::string& path) { (void)misses->renew(path); });
}

// Whether all users may read the unit's files once they are published. True if the configuration says so. Also true if
// the program creates its files by mkstemp(3), which denies access to other users (Profile::mkstemp), and the directory
// that contains the unit is open to all users.
bool Publisher::opens_all(int upper, const std::string& unit) const {
  if (opens_all_files_) return true;
  const auto ref = entries_.find(unit);
  if (!ref || !ref->profile->mkstemp) return false;
  const auto directory = sys::open_beneath(upper, parent_path(unit), O_PATH | O_DIRECTORY);
  const auto st = directory ? sys::stat_fd(directory->get()) : directory.error();
  constexpr mode_t kOpen = S_IROTH | S_IXOTH;
  return st && (st->st_mode & kOpen) == kOpen;
}

// Whether every user may read the file once it is published. If not, even the user who made it could not read it,
// because the service account would own it.
bool Publisher::is_open_to_readers(const Stage& stage, const struct stat& st) {
  return stage.opens_all || (st.st_mode & S_IROTH) != 0;
}

Status Publisher::collect_unit(Stage& stage, const std::string& unit) const {
  stage.opens_all = opens_all(stage.upper.get(), unit);
  if (!stage.is_group) {
    std::vector<std::string> directories;
    CACHESHIM_CHECK(collect(stage, "", directories));
    while (!directories.empty()) {  // no recursion: a job may create trees of any depth
      if (!is_still_wanted(stage.is_wanted)) return Errno(ECANCELED);
      const std::string rest = std::move(directories.back());
      directories.pop_back();
      CACHESHIM_CHECK(collect_directory(stage, rest, directories));
    }
    return {};
  }
  stage.directories.emplace_back();
  for (const std::string& path : entries_.find(unit)->file_paths()) {
    if (entries_.is_beside_entry(path)) continue;
    std::vector<std::string> directories;  // a directory of that name belongs to no entry
    const Status collected = collect(stage, std::string(base_name(path)), directories);
    if (!collected && !collected.failed_with(ENOENT)) return collected;
    if (collected && path == unit)
      stage.files.back().completes = true;  // the file with the first ending enters the base last
  }
  return {};
}

// Collects the layer's object at `rest`, a path relative to the unit: adds a file or a symlink to the
// stage's files, and a directory to `directories`, which the caller lists. Skips files that are used
// only as locks (is_lock_by_use()), FIFOs, sockets and devices. The callers skip scratch names,
// locks, batons and reserved names.
Status Publisher::collect(Stage& stage, const std::string& rest,
                          std::vector<std::string>& directories) const {
  const std::string path = join_path(stage.unit, rest);
  if (is_too_deep_for_base(path)) return Errno(ENAMETOOLONG);
  CACHESHIM_TRY(object, sys::open_beneath(stage.upper.get(), path, O_PATH | O_NOFOLLOW));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  if (is_lock_by_use(path, st)) return {};
  if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) {
    return collect_file(stage, rest, object.get(), st);
  }
  if (S_ISDIR(st.st_mode)) directories.push_back(rest);
  return {};
}

Status Publisher::collect_directory(Stage& stage, const std::string& rest,
                                    std::vector<std::string>& directories) const {
  const auto directory = sys::open_beneath(stage.upper.get(), join_path(stage.unit, rest),
                                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (directory.failed_with(ENOENT)) return {};
  if (!directory) return directory.error();
  stage.directories.push_back(rest);
  CACHESHIM_TRY(entries, sys::read_dir(directory->get()));
  for (const sys::DirEntry& entry : entries) {
    const std::string child = join_path(rest, entry.name);
    if (is_reserved_name(entry.name) || entries_.is_beside_entry(join_path(stage.unit, child))) {
      continue;
    }
    const Status collected = collect(stage, child, directories);
    if (!collected && !collected.failed_with(ENOENT)) return collected;
  }
  return {};
}

// Even a file with contents, such as a process id, counts as a lock if the base has an empty file at
// its path: the base's file stands in for the layer's file when jobs lock it (NamedLockFiles).
bool Publisher::is_lock_by_use(const std::string& path, const struct stat& st) const {
  if (!S_ISREG(st.st_mode)) return false;
  if (entries_.is_bare_lock(path, st.st_size)) return true;
  if (st.st_size > kMostLockBytes || !entries_.may_become_lock(path)) return false;
  const auto theirs = sys::open_beneath(store_.base(), path, O_PATH | O_NOFOLLOW);
  const auto base = theirs ? sys::stat_fd(theirs->get()) : theirs.error();
  return base && S_ISREG(base->st_mode) && entries_.is_bare_lock(path, base->st_size);
}

Status Publisher::collect_file(Stage& stage, const std::string& rest, int object,
                               const struct stat& st) const {
  const std::string path = join_path(stage.unit, rest);
  const auto ref = entries_.find(path);
  StagedFile file;
  file.rest = rest;
  file.source = st;
  file.completes = ref && ref->rule->completes(base_name(path));
  if (S_ISLNK(st.st_mode)) {
    auto target = sys::read_link_at(object, "");
    if (!target) return target.error();
    if (!may_point_to(path, *target)) return Errno(EPERM);
    file.link_target = *std::move(target);
  }
  stage.files.push_back(std::move(file));
  return {};
}

// A symlink may point into its own cache, by a path that is relative or begins with the recorded
// mount path. No directory above the symlink is itself a symlink, so the depth of `path` limits how
// many ".." the target may begin with.
bool Publisher::may_point_to(std::string_view path, std::string_view target) const {
  if (!target.starts_with('/')) {
    const auto components = std::count(path.begin(), path.end(), '/');
    for (auto above = components; above > 1 && target.starts_with("../"); --above) {
      target.remove_prefix(3);
    }
    return leads_down(target);
  }
  if (store_.mount_path().empty()) return false;
  const std::string cache = join_path(store_.mount_path(), take_component(path)) + "/";
  return target.starts_with(cache) && leads_down(target);
}

// Compares the unit with the base and stages the missing files. Returns false if a file exists in both and differs.
// Needs no lock, because files in the base no longer change, and commit() fails if another publisher has added or
// replaced files in the meantime.
Result<bool> Publisher::stage_files(Stage& stage, PublishHooks& hooks) const {
  if (!stage.is_group) {
    const auto existing = sys::open_beneath(store_.base(), stage.unit, O_PATH | O_NOFOLLOW);
    stage.is_new = existing.failed_with(ENOENT);
    if (!existing && !stage.is_new) return existing.error();
    if (existing) {
      CACHESHIM_TRY(st, sys::stat_fd(existing->get()));
      stage.base = {st.st_dev, st.st_ino};
      if (!stage.replaces() && names_foreign_paths(stage.unit)) {
        stage.why_replaces = "holds paths of another mount";
      }
    }
    stage.is_new = stage.is_new || stage.replaces();
  }
  for (const std::string& directory : stage.directories)
    CACHESHIM_CHECK(stage.make_directory(directory));
  for (StagedFile& file : stage.files) {
    if (!is_still_wanted(stage.is_wanted)) return Errno(ECANCELED);
    CACHESHIM_TRY(agrees, stage_file(stage, file, hooks));
    if (!agrees) return false;
  }
  // The completing file is committed last.
  std::stable_partition(stage.files.begin(), stage.files.end(),
                        [](const StagedFile& file) { return !file.completes; });
  return true;
}

Result<bool> Publisher::stage_file(Stage& stage, StagedFile& file, PublishHooks& hooks) const {
  UniqueFd source;
  if (file.link_target.empty()) {
    auto opened = sys::open_beneath(stage.upper.get(), stage.path_of(file),
                                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (opened.failed_with(ENOENT)) return Errno(ESTALE);
    if (!opened) return opened.error();
    source = *std::move(opened);
    if (!hooks.wait_until_closed(file.source.st_dev, file.source.st_ino)) return Errno(EBUSY);
    if (!wait_until_unwritable(source.get())) return Errno(EBUSY);
    CACHESHIM_TRY(st, sys::stat_fd(source.get()));
    if (st.st_ino != file.source.st_ino) return Errno(ESTALE);
    if (st.st_size > kMostDigestBytes) return Errno(EOVERFLOW);
    if (!is_open_to_readers(stage, st) && !hooks.has_one_user()) return Errno(EACCES);
    file.source = st;
    CACHESHIM_TRY(is_foreign, has_foreign_paths(stage.upper.get(), stage.path_of(file)));
    if (is_foreign) return Errno(EPERM);
  }
  const auto theirs =
      stage.is_new ? Result<UniqueFd>(Errno(ENOENT))
                   : sys::open_beneath(store_.base(), stage.path_of(file), O_PATH | O_NOFOLLOW);
  if (theirs) {
    CACHESHIM_TRY(st, sys::stat_fd(theirs->get()));
    file.in_base = true;
    file.base = {st.st_dev, st.st_ino};
    return stage.are_equal(file, source.get(), theirs->get());
  }
  // ENOTDIR, ELOOP: the base has a file or symlink where the unit has a directory.
  if (!theirs.failed_with(ENOENT)) return false;
  if (!file.link_target.empty()) {
    CACHESHIM_CHECK(stage.add_symlink(file));
    return true;
  }
  CACHESHIM_CHECK(stage.add_file(file, source.get()));
  return true;
}

Status Publisher::sync(std::span<const Stage> stages) const {
  std::size_t files = 0;
  for (const Stage& stage : stages) files += stage.files.size();
  if (files >= kSyncWholeFrom) {
    return ::syncfs(store_.staging()) == -1 ? Status(Errno::last()) : Status();
  }
  for (const Stage& stage : stages) CACHESHIM_CHECK(stage.sync());
  return {};
}

// Returns the lock that keeps two threads from staging the same unit of a job at the same time. Without it, each thread
// would take the other's hard links for names through which the job could write to the files.
std::shared_ptr<Mutex> Publisher::staging_lock(const Overlay& overlay, const std::string& unit) {
  return staging_locks_.of(fmt::format("{} {}", fmt::ptr(&overlay), unit));
}

}  // namespace cacheshim
