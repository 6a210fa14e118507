// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "store/base/base_units.h"
#include "store/publish/publisher.h"
#include "store/sys/rename_flags.h"
#include "store/sys/sys.h"

// Adds entries of other machines to the base.
namespace cacheshim {
namespace {

// Renames the object at `path`, relative to the directory `staged`, to the same path in the base.
Status move_into_base(int staged, int base, const std::string& path) {
  const std::string name(base_name(path));
  CACHESHIM_TRY(from, sys::open_beneath(staged, parent_path(path), O_PATH | O_DIRECTORY));
  CACHESHIM_TRY(to, sys::open_beneath(base, parent_path(path), O_PATH | O_DIRECTORY));
  return sys::rename_new_at(from.get(), name, to.get(), name);
}

}  // namespace

Result<bool> Publisher::adopt(int staged, const std::string& unit, std::vector<AuditFile> files,
                              const PublishingJob& by) {
  const auto ref = entries_.find(unit);
  if (!ref || !ref->profile->may_publish_early() || ref->unit() != unit) return Errno(EINVAL);
  for (const AuditFile& file : files) {
    CACHESHIM_TRY(is_foreign, has_foreign_paths(staged, file.path));
    if (is_foreign) return Errno(EXDEV);
  }
  // The file that completes an entry of several files is added last.
  std::stable_partition(files.begin(), files.end(), [&](const AuditFile& file) {
    return !ref->rule->completes(base_name(file.path));
  });
  const auto unit_lock = commit_locks_.of(unit);
  const MutexLock lock(*unit_lock);
  CACHESHIM_CHECK(ensure_base_parents(unit));
  AuditRecord record;
  record.unit = unit;
  record.job = by.job;
  record.cycle = by.cycle;
  record.uid = by.uid;
  if (ref->rule->is_directory()) {
    const Status added = move_into_base(staged, store_.base(), unit);
    if (added.failed_with(EEXIST)) return false;
    CACHESHIM_CHECK(added);
    record.files = std::move(files);
  }
  for (AuditFile& file : files) {
    const Status added = move_into_base(staged, store_.base(), file.path);
    if (added.failed_with(EEXIST)) return false;
    CACHESHIM_CHECK(added);
    record.files.push_back(std::move(file));
  }
  if (const Status kept = store_.audit().append(std::move(record)); !kept) {
    spdlog::error("cannot record that '{}' was added: {}; 'verify' will not know it", unit,
                  std::strerror(kept.error().code()));
  }
  return true;
}

}  // namespace cacheshim
