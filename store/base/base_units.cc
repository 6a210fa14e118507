// SPDX-License-Identifier: Apache-2.0
#include "store/base/base_units.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <map>

#include "common/names.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"
#include "store/sys/tree_walk.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kStatBlockBytes = 512;  // the unit of st_blocks

class BaseLister {
 public:
  // `accepts`: if not empty, list() returns only units with a path that it accepts, and does not measure them.
  BaseLister(int base, const EntryMap& entries,
             const std::function<bool(std::string_view path)>& accepts = {},
             const IsWanted& is_wanted = {})
      : base_(base), entries_(entries), accepts_(accepts), is_wanted_(is_wanted) {}

  std::vector<BaseUnit> list() {
    // If an object cannot be read, it is not counted.
    (void)walk_tree(base_, "", [this](const WalkedDirectory& directory) {
      if (!is_still_wanted(is_wanted_)) return Status(Errno(ECANCELED));
      visit(directory);
      return Status();
    });
    return std::move(units_);
  }

 private:
  void visit(const WalkedDirectory& directory) {
    const bool is_top = directory.path.empty();
    const bool is_known = entries_.find_profile(first_component(directory.path)) != nullptr;
    // the index in units_ of each entry that consists of files, by the name of its unit
    std::map<std::string, std::size_t> groups;
    for (const sys::DirEntry& name : directory.entries) {
      const std::string path = join_path(directory.path, name.name);
      const bool is_dir = is_directory(directory.fd, name);
      if (is_top) {
        const bool is_own = path == kControlName || path == kJobsName;
        if (is_dir && !is_own) directory.further.push_back(name.name);
        continue;
      }
      const auto ref = entries_.find(path);
      if (row_of(entries_.class_of(path)).is_outside_units) continue;
      if (ref && !is_dir && !ref->rule->is_directory()) {
        if (accepts_ && !accepts_(path)) continue;
        const auto [at, added] = groups.try_emplace(ref->unit(), units_.size());
        if (added) units_.push_back({ref->unit(), {}, 0, 0, 0});
        add(units_[at->second], path, directory.fd, name);
      } else if (is_known && is_dir && !(ref && ref->is_entry_directory())) {
        directory.further.push_back(name.name);
      } else if (!accepts_ || accepts_(path)) {
        units_.push_back({path, {}, 0, 0, 0});
        add(units_.back(), path, directory.fd, name);
      }
    }
  }

  static std::string_view first_component(std::string_view path) { return take_component(path); }

  // Adds the object `top` in `directory`, with everything below it, to `unit`.
  void add(BaseUnit& unit, const std::string& path, int directory, const sys::DirEntry& top) const {
    unit.paths.push_back(path);
    if (accepts_) return;
    measure(unit, directory, top.name);
    if (!is_directory(directory, top)) return;
    // If an object cannot be read, it is not counted.
    (void)walk_tree(directory, top.name, [&](const WalkedDirectory& below) {
      const auto st = sys::stat_fd(below.fd);
      if (st && below.entries.empty()) unit.last_use = std::max(unit.last_use, st->st_mtime);
      for (const sys::DirEntry& entry : below.entries) {
        measure(unit, below.fd, entry.name);
        if (is_directory(below.fd, entry)) below.further.push_back(entry.name);
      }
      return Status();
    });
  }

  static void measure(BaseUnit& unit, int directory, const std::string& name) {
    const auto st = sys::stat_at(directory, name);
    if (!st) return;
    ++unit.files;
    unit.bytes += static_cast<std::uint64_t>(st->st_blocks) * kStatBlockBytes;
    if (!S_ISDIR(st->st_mode)) {
      unit.last_use = std::max({unit.last_use, st->st_atime, st->st_mtime});
    }
  }

  const int base_;
  const EntryMap& entries_;
  const std::function<bool(std::string_view path)> accepts_;
  const IsWanted is_wanted_;
  std::vector<BaseUnit> units_;
};

}  // namespace

BaseUnit base_unit(const EntryMap& entries, const std::string& unit) {
  const auto ref = entries.find(unit);
  BaseUnit whole{unit, {unit}, 0, 0, 0};
  if (ref && !ref->rule->is_directory()) whole.paths = ref->file_paths();
  return whole;
}

std::vector<BaseUnit> list_base_units(const Store& store, const EntryMap& entries) {
  return BaseLister(store.base(), entries).list();
}

Result<std::vector<std::string>> find_base_units(
    const Store& store, const EntryMap& entries,
    const std::function<bool(std::string_view path)>& accepts, const IsWanted& is_wanted) {
  std::vector<std::string> names;
  for (BaseUnit& unit : BaseLister(store.base(), entries, accepts, is_wanted).list())
    names.push_back(std::move(unit.unit));
  if (!is_still_wanted(is_wanted)) return Errno(ECANCELED);
  std::ranges::sort(names);
  return names;
}

std::string new_trash_name() {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}-{}-{}-{}", std::time(nullptr), node_name(), ::getpid(),
                     count.fetch_add(1));
}

Status discard_unit(const Store& store, const BaseUnit& unit, AuditRecord::Event event,
                    const std::string& reason) {
  for (const std::string& path : unit.paths) {
    const auto parent =
        sys::open_beneath(store.base(), parent_path(path), O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (parent.failed_with(ENOENT)) continue;
    if (!parent) return parent.error();
    const Status moved = sys::rename_at(parent->get(), std::string(base_name(path)), store.trash(),
                                        new_trash_name());
    if (!moved && !moved.failed_with(ENOENT)) return moved;
  }
  AuditRecord record;
  record.event = event;
  record.unit = unit.unit;
  record.reason = reason;
  if (const Status recorded = store.audit().append(std::move(record)); !recorded) {
    spdlog::error("cannot record that '{}' was moved to trash: {}", unit.unit,
                  std::strerror(recorded.error().code()));
  }
  return {};
}

std::time_t trashed_since(std::string_view name) {
  std::time_t since = 0;
  (void)std::from_chars(name.data(), name.data() + name.size(), since);
  return since;
}

void sweep_trash(const Store& store, std::time_t keep_seconds, const IsWanted& is_wanted) {
  const auto names = sys::list_dir(store.trash());
  if (!names) return;
  const std::time_t oldest = std::time(nullptr) - keep_seconds;
  for (const sys::DirEntry& name : *names) {
    if (trashed_since(name.name) > oldest) continue;
    // If this fails, the next sweep tries again.
    (void)sys::remove_tree(store.trash(), name.name, is_wanted);
  }
}

}  // namespace cacheshim
