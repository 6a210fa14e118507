// SPDX-License-Identifier: Apache-2.0
#include "store/base/verifier.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "store/base/recorded_paths.h"
#include "store/sys/digest.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

using Files = std::map<std::string, AuditFile>;

// Returns the files that each unit of the base should have, according to the records.
Result<std::map<std::string, Files>> recorded_units(const AuditLog& audit) {
  std::vector<AuditRecord> records;
  CACHESHIM_CHECK(audit.read([&](AuditRecord record) { records.push_back(std::move(record)); }));
  std::stable_sort(records.begin(), records.end(),
                   [](const auto& left, const auto& right) { return left.time < right.time; });
  std::map<std::string, Files> units;
  for (AuditRecord& record : records) {
    if (record.event != AuditRecord::Event::kPublish) {
      units.erase(record.unit);
      continue;
    }
    Files& files = units[record.unit];
    for (AuditFile& file : record.files) files[file.path] = std::move(file);
  }
  return units;
}

// Opens a file with O_NOATIME, so that reading does not change its access time. If this process
// may not use the flag for this file, opens the file without it.
Result<UniqueFd> open_quietly(int base, const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
  auto opened = sys::open_beneath(base, path, kFlags | O_NOATIME);
  return opened.failed_with(EPERM) ? sys::open_beneath(base, path, kFlags) : std::move(opened);
}

// Whether the error says nothing about the file itself: the process lacks a resource, or the file was replaced on the
// file server in the meantime. A later attempt may succeed.
bool is_transient(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR || error == EAGAIN ||
         error == ESTALE;
}

// Returns the fault of a file for which an operation failed with `error`, as text. Errors: `error` itself, if it is
// transient.
Result<std::string> fault_by(Errno error) {
  if (is_transient(error.code())) return error;
  return std::string(error == ENOENT ? kMissingFile : std::strerror(error.code()));
}

bool is_wholly_gone(int base, const Files& files) {
  return std::all_of(files.begin(), files.end(), [&](const auto& file) {
    const auto object = sys::open_beneath(base, file.first, O_PATH | O_NOFOLLOW);
    return object.failed_with(ENOENT) || object.failed_with(ENOTDIR);
  });
}

void repair_units(const Store& store, const std::vector<BaseUnit>& units, VerifyReport& report) {
  std::set<std::string> damaged;
  for (const DamagedFile& file : report.damaged) damaged.insert(file.unit);
  for (const BaseUnit& unit : units) {
    if (!damaged.contains(unit.unit)) continue;
    const Status moved = discard_unit(store, unit, AuditRecord::Event::kRepair, "damaged");
    // Even if the move has failed, some of the paths may be in trash.
    report.trashed_paths.insert(report.trashed_paths.end(), unit.paths.begin(), unit.paths.end());
    if (!moved) {
      spdlog::error("cannot move the damaged '{}' to trash: {}; it stays", unit.unit,
                    std::strerror(moved.error().code()));
      continue;
    }
    report.repaired.push_back(unit.unit);
  }
}

void find_path_faults(const Store& store, const EntryMap& entries,
                      const std::vector<BaseUnit>& units, VerifyReport& report) {
  for (const BaseUnit& unit : units) {
    const auto directory =
        sys::open_beneath(store.base(), unit.unit, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    const auto names = directory ? sys::list_dir(directory->get()) : directory.error();
    if (!names) continue;
    for (const sys::DirEntry& name : *names) {
      const std::string path = join_path(unit.unit, name.name);
      std::string fault = path_fault_of(store.base(), store.mount_path(), entries, path);
      if (!fault.empty()) report.damaged.push_back({path, unit.unit, std::move(fault)});
    }
  }
}

}  // namespace

std::string path_fault_of(int base, const std::string& mount_path, const EntryMap& entries,
                          const std::string& path) {
  const auto ref = entries.find(path);
  if (!ref || !ref->rule->holds_paths(base_name(path)) || mount_path.empty()) return "";
  const auto opened = open_quietly(base, path);
  if (!opened) return "";
  const auto names = names_path_outside(opened->get(), join_path(mount_path, ref->profile->name));
  return names && *names ? "names files outside of the mount's cache" : "";
}

Result<std::string> fault_of(int base, const AuditFile& file, const IsWanted& is_wanted) {
  if (file.digest.empty()) {  // a symlink
    const auto object = sys::open_beneath(base, file.path, O_PATH | O_NOFOLLOW);
    return object ? std::string() : fault_by(object.error());
  }
  const auto opened = open_quietly(base, file.path);
  if (!opened) return fault_by(opened.error());
  const auto st = sys::stat_fd(opened->get());
  if (!st) return fault_by(st.error());
  if (!S_ISREG(st->st_mode)) return std::string("not a regular file");
  if (static_cast<std::uint64_t>(st->st_size) != file.size) {
    return fmt::format("{} bytes, {} on record", st->st_size, file.size);
  }
  const auto digest = digest_of(opened->get(), is_wanted);
  if (digest.failed_with(ECANCELED)) return digest.error();
  if (!digest) return fault_by(digest.error());
  return std::string(*digest == file.digest ? "" : "its content differs from the record");
}

Result<VerifyReport> verify_base(const Store& store, const EntryMap& entries, bool repair,
                                 const VerifyProgress& progress, const IsWanted& is_wanted) {
  CACHESHIM_TRY(recorded, recorded_units(store.audit()));
  VerifyReport report;
  std::uint64_t done = 0;
  for (const auto& [unit, files] : recorded) {
    progress(done++, recorded.size());
    if (is_wholly_gone(store.base(), files)) continue;
    for (const auto& [path, file] : files) {
      if (row_of(entries.class_of(path)).changes_in_place) continue;
      if (!is_still_wanted(is_wanted)) return Errno(ECANCELED);
      CACHESHIM_TRY(fault, fault_of(store.base(), file, is_wanted));
      if (fault.empty()) {
        ++report.files;
        report.bytes += file.size;
      } else if (fault != kMissingFile || !is_wholly_gone(store.base(), files)) {
        // A missing file is not damage if the whole unit has been evicted in the meantime.
        report.damaged.push_back({path, unit, std::move(fault)});
      }
    }
  }
  const auto units = list_base_units(store, entries);
  find_path_faults(store, entries, units, report);
  report.unrecorded = static_cast<std::uint64_t>(
      std::count_if(units.begin(), units.end(),
                    [&](const BaseUnit& unit) { return !recorded.contains(unit.unit); }));
  if (repair) repair_units(store, units, report);
  progress(done, recorded.size());
  return report;
}

}  // namespace cacheshim
