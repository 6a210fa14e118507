// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "store/base/base_units.h"
#include "store/overlay/layer_upkeep.h"
#include "store/publish/publish_stage.h"
#include "store/sys/rename_flags.h"
#include "store/sys/same_time.h"
#include "store/sys/sys.h"

// The last step of publishing: the staged files enter the base, and leave the layer.
namespace cacheshim {
namespace {

// The maximum size of the files' list in one record; a larger entry gets several records. JSON escapes can make the
// list up to six times as long, and readers skip a line that exceeds kRecordLimits (16 MiB).
constexpr std::size_t kMostAppendedBytes = std::size_t{1} << 20;
constexpr std::size_t kMostFieldBytes = 128;  // for a file's size and digest

bool is_same_file(const struct stat& left, const struct stat& right) {
  return left.st_dev == right.st_dev && left.st_ino == right.st_ino &&
         left.st_size == right.st_size && is_same_time(left.st_mtim, right.st_mtim);
}

}  // namespace

// Adds the staged files to the base and records them.
Status Publisher::commit(Overlay& overlay, const Stage& stage, const std::string& unit,
                         PublishHooks& hooks) {
  const auto unit_lock = commit_locks_.of(unit);
  const MutexLock lock(*unit_lock);
  CACHESHIM_CHECK(commit_with_unit_lock(overlay, stage, hooks));
  record(stage, unit, hooks);  // under the lock, so that the records are in the order of the changes
  return {};
}

// Errors: ESTALE if the layer or the base has changed since the files were staged; EACCES if the job may no longer
// publish.
Status Publisher::commit_with_unit_lock(Overlay& overlay, const Stage& stage,
                                        PublishHooks& hooks) const {
  if (!is_base_unchanged(stage)) return Errno(ESTALE);
  CACHESHIM_CHECK(ensure_base_parents(stage.unit));
  const WriterLock lock(overlay.mutex());
  if (!hooks.why_refused().empty()) return Errno(EACCES);  // the job may have been refused since the staging
  if (!is_layer_unchanged(overlay, stage, hooks)) return Errno(ESTALE);
  const Status added = add_to_base(stage);
  // Another daemon has published the entry, or removed the entry to be replaced: compare again.
  if (added.failed_with(EEXIST)) return Errno(ESTALE);
  if (stage.replaces() && added.failed_with(ENOENT)) return Errno(ESTALE);
  CACHESHIM_CHECK(added);
  drop_from_layer(overlay, stage, hooks);
  return {};
}

bool Publisher::is_base_unchanged(const Stage& stage) const {
  if (stage.replaces()) return version_of(store_.base(), stage.unit) == stage.base;
  if (stage.is_new) return true;  // rename_new_at() fails if the base has the unit by then
  return std::all_of(stage.files.begin(), stage.files.end(), [&](const StagedFile& file) {
    return version_of(store_.base(), stage.path_of(file)) == file.base;
  });
}

bool Publisher::is_layer_unchanged(const Overlay& overlay, const Stage& stage,
                                   PublishHooks& hooks) const {
  if (!overlay.has_layer()) return false;
  const auto is_same = [&](const StagedFile& file) REQUIRES_SHARED(overlay.mutex()) {
    const bool is_file = file.link_target.empty();
    const int flags = is_file ? O_RDONLY | O_NONBLOCK : O_PATH;
    const auto now = sys::open_beneath(overlay.upper(), stage.path_of(file), flags | O_NOFOLLOW);
    if (!now || (is_file && sys::can_be_written(now->get()))) return false;
    const auto st = sys::stat_fd(now->get());
    if (!st || !is_same_file(*st, file.source)) return false;
    // A linked file has exactly two names: the layer's and the staged one. Through a third name, the job could write to
    // the file.
    const bool is_as_staged = file.is_linked
                                  ? st->st_nlink == 2 && stage.is_sealed(file, now->get(), *st)
                                  : st->st_mode == file.source.st_mode;
    return is_as_staged && !hooks.is_being_written(st->st_dev, st->st_ino);
  };
  return std::all_of(stage.files.begin(), stage.files.end(), is_same);
}

Status Publisher::add_to_base(const Stage& stage) const {
  if (stage.is_new) {
    CACHESHIM_TRY(parent,
                  sys::open_beneath(store_.base(), parent_path(stage.unit), O_PATH | O_DIRECTORY));
    const std::string tree(Stage::kTree);
    const std::string name(base_name(stage.unit));
    if (!stage.replaces()) return sys::rename_new_at(stage.directory(), tree, parent.get(), name);
    CACHESHIM_CHECK(carry_locks(stage));
    // Open descriptors of the replaced entry's files remain readable.
    return sys::displace_at({stage.directory(), tree}, {parent.get(), name},
                            {store_.trash(), new_trash_name()});
  }
  for (const StagedFile& file : stage.files) {
    if (file.in_base) continue;
    const std::string path = stage.path_of(file);
    CACHESHIM_CHECK(ensure_base_parents(path));
    CACHESHIM_TRY(parent,
                  sys::open_beneath(store_.base(), parent_path(path), O_PATH | O_DIRECTORY));
    CACHESHIM_CHECK(sys::rename_new_at(stage.directory(), Stage::tree_path(file.rest),
                                       parent.get(), std::string(base_name(path))));
  }
  return {};
}

Status Publisher::ensure_base_parents(const std::string& path) const {
  const std::string directory(parent_path(path));
  if (directory.empty()) return {};
  if (sys::open_beneath(store_.base(), directory, O_PATH | O_DIRECTORY)) return {};
  CACHESHIM_CHECK(ensure_base_parents(directory));
  CACHESHIM_TRY(parent,
                sys::open_beneath(store_.base(), parent_path(directory), O_RDONLY | O_DIRECTORY));
  return sys::ensure_dir_at(parent.get(), std::string(base_name(directory)), 0755);
}

// The base now has all files. If a step fails from here on, the layer merely keeps an equal copy.
void Publisher::drop_from_layer(Overlay& overlay, const Stage& stage, PublishHooks& hooks) const {
  for (const StagedFile& file : stage.files) {
    const std::string path = stage.path_of(file);
    const auto published = sys::open_beneath(store_.base(), path, O_PATH | O_NOFOLLOW);
    const auto st = published ? sys::stat_fd(published->get()) : published.error();
    if (!st || !drop_file(overlay, path)) continue;
    hooks.published(path, *st);
  }
  for (auto directory = stage.directories.rbegin(); directory != stage.directories.rend();
       ++directory) {  // in reverse, because parents come first in the list
    const std::string path = join_path(stage.unit, *directory);
    if (!stage.is_group) (void)clear_opaque(overlay, path);
    prune_empty_dir(overlay, path);
  }
}

void Publisher::record(const Stage& stage, const std::string& unit,
                       const PublishHooks& hooks) const {
  if (stage.replaces()) record_replaced(stage, unit);
  PublishingJob by = hooks.identity();
  AuditRecord record;
  record.unit = unit;
  record.job = std::move(by.job);
  record.cycle = std::move(by.cycle);
  record.uid = by.uid;
  std::size_t bytes = 0;
  Status kept;
  const auto append = [&] {
    if (kept && !record.files.empty()) kept = store_.audit().append(record);
    record.files.clear();
    bytes = 0;
  };
  for (const StagedFile& file : stage.files) {
    if (file.in_base) continue;
    record.files.push_back(
        {stage.path_of(file), static_cast<std::uint64_t>(file.source.st_size), file.digest});
    bytes += record.files.back().path.size() + kMostFieldBytes;
    if (bytes > kMostAppendedBytes) append();
  }
  append();
  if (!kept) {
    spdlog::error("cannot record that '{}' was published: {}; 'verify' will not know it", unit,
                  std::strerror(kept.error().code()));
  }
}

PublishReport Publisher::account(const Stage& stage) const {
  PublishReport report;
  for (const StagedFile& file : stage.files) {
    if (file.in_base) report.copies.push_back(stage.path_of(file));
    if (file.in_base) continue;
    ++report.files;
    report.bytes += static_cast<std::uint64_t>(file.source.st_size);
    report.paths.push_back(stage.path_of(file));
  }
  report.entries = report.files > 0 ? 1 : 0;
  counters_.entries_published.fetch_add(report.entries);
  counters_.files_published.fetch_add(report.files);
  counters_.bytes_published.fetch_add(report.bytes);
  return report;
}

}  // namespace cacheshim
