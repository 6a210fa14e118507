// SPDX-License-Identifier: Apache-2.0
#include "store/base/open_verifier.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <cstring>

#include "store/base/base_units.h"
#include "store/base/verifier.h"
#include "store/sys/paths.h"
#include "store/sys/same_time.h"
#include "store/sys/sys.h"

namespace cacheshim {

bool OpenVerifier::Stamp::operator==(const Stamp& other) const {
  return device == other.device && inode == other.inode && size == other.size &&
         is_same_time(changed, other.changed) && is_same_time(written, other.written);
}

OpenVerifier::Stamp OpenVerifier::stamp_of(const struct stat& st) {
  return {st.st_dev, st.st_ino, st.st_size, st.st_ctim, st.st_mtim};
}

bool OpenVerifier::is_checked_name(std::string_view name) {
  return name.ends_with(".so") || name.ends_with(".cubin");
}

std::string OpenVerifier::unit_of(const std::string& path) const {
  if (const auto ref = entries_.find(path)) return ref->unit();
  const auto known = unit_by_path_.find(path);
  return known == unit_by_path_.end() ? path : known->second;
}

// Reads the audit records that this daemon and others have added since the last call.
Status OpenVerifier::read_on() {
  return store_.audit().read_on(places_, [this](AuditRecord record) REQUIRES(mutex_) {
    if (record.event != AuditRecord::Event::kPublish) return forget(record.unit);
    for (AuditFile& file : record.files) {
      if (file.digest.empty() || !is_checked_name(base_name(file.path))) continue;
      unit_by_path_[file.path] = record.unit;
      units_[record.unit][file.path] = file;
    }
  });
}

// Removes a unit from the tables when it has left the base. Otherwise the tables would keep every entry that was ever
// published.
void OpenVerifier::forget(const std::string& unit) {
  for (const AuditFile& file : files_of(unit)) {
    unit_by_path_.erase(file.path);
    seen_.erase(file.path);
  }
  units_.erase(unit);
  checked_units_.erase(unit);
}

std::vector<AuditFile> OpenVerifier::files_of(const std::string& unit) const {
  std::vector<AuditFile> files;
  const auto found = units_.find(unit);
  if (found == units_.end()) return files;
  for (const auto& [path, file] : found->second) files.push_back(file);
  return files;
}

bool OpenVerifier::has_seen(const std::string& path, const Stamp& stamp) const {
  const auto seen = seen_.find(path);
  return seen != seen_.end() && seen->second == stamp;
}

// Whether a process may use the object at this path without further checks. That is the case if the object's unit has
// been checked and, for a code file, the file has not changed since then.
bool OpenVerifier::is_known(const std::string& path, const std::string& unit) const {
  if (!checked_units_.contains(unit)) return false;
  if (!is_checked_name(base_name(path))) return true;
  const auto object = sys::open_beneath(store_.base(), path, O_PATH | O_NOFOLLOW);
  const auto st = object ? sys::stat_fd(object->get()) : object.error();
  return st ? has_seen(path, stamp_of(*st)) : st.failed_with(ENOENT);
}

// Reads the unit's code files, except those that were read before and have not changed since. Returns the first fault,
// "" if there is none. Errors: those of fault_of().
Result<std::string> OpenVerifier::fault_in(const std::string& unit) {
  std::vector<AuditFile> files;
  {
    const MutexLock lock(mutex_);
    files = files_of(unit);
  }
  for (const AuditFile& file : files) {
    const auto object = sys::open_beneath(store_.base(), file.path, O_PATH | O_NOFOLLOW);
    const auto st = object ? sys::stat_fd(object->get()) : object.error();
    if (st.failed_with(ENOENT)) continue;  // the file is gone, so a lookup of it fails too
    if (st) {
      const MutexLock lock(mutex_);
      if (has_seen(file.path, stamp_of(*st))) continue;
    }
    CACHESHIM_TRY(fault, fault_of(store_.base(), file));
    if (!fault.empty() && fault != kMissingFile) return "'" + file.path + "': " + fault;
    const MutexLock lock(mutex_);
    if (st) seen_[file.path] = stamp_of(*st);
  }
  return std::string();
}

std::vector<std::string> OpenVerifier::move_to_trash(const std::string& unit) const {
  const BaseUnit whole = base_unit(entries_, unit);
  const Status moved = discard_unit(store_, whole, AuditRecord::Event::kRepair, "damaged");
  if (!moved) {
    spdlog::error("cannot move the damaged '{}' to trash: {}; it stays", unit,
                  std::strerror(moved.error().code()));
  }
  return whole.paths;  // even after a failure, some of them may be in trash
}

OpenVerifier::Verdict OpenVerifier::unchecked(const std::string& path, Errno error) {
  if (!has_warned_.exchange(true)) {
    spdlog::warn("verify_on_open: cannot check '{}': {}; it is used unchecked until a later lookup",
                 path, std::strerror(error.code()));
  }
  return {};
}

OpenVerifier::Verdict OpenVerifier::check(const std::string& path) {
  std::string unit;
  {
    const MutexLock lock(mutex_);
    unit = unit_of(path);
    if (is_known(path, unit)) return {};
    if (const Status read = read_on(); !read) return unchecked(path, read.error());
    unit = unit_of(path);
  }
  const auto fault = fault_in(unit);
  if (!fault) return unchecked(path, fault.error());
  Verdict verdict{*fault, {}};
  if (!verdict.why.empty()) {
    verdict.trashed_paths = move_to_trash(unit);
    const MutexLock lock(mutex_);
    checked_units_.erase(unit);
    return verdict;
  }
  const auto object = sys::open_beneath(store_.base(), path, O_PATH | O_NOFOLLOW);
  const auto st = object ? sys::stat_fd(object->get()) : object.error();
  const MutexLock lock(mutex_);
  checked_units_.insert(unit);
  // A code file without a record has no digest to compare it with, so it counts as checked.
  if (st && is_checked_name(base_name(path)) && !unit_by_path_.contains(path)) {
    seen_[path] = stamp_of(*st);
  }
  return verdict;
}

}  // namespace cacheshim
