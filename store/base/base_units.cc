// SPDX-License-Identifier: Apache-2.0
#include "store/base/base_units.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>

#include "common/names.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kBlockBytes = 512;  // of st_blocks

class Lister {
 public:
  Lister(int base, const EntryMap& entries) : base_(base), entries_(entries) {}

  std::vector<BaseUnit> list() {
    for (const sys::DirEntry& top : names_in("")) {
      if (top.type != DT_DIR || top.name == kControlName || top.name == kJobsName) continue;
      visit(top.name, entries_.find_profile(top.name) != nullptr);
    }
    return std::move(units_);
  }

 private:
  std::vector<sys::DirEntry> names_in(const std::string& directory) const {
    const auto fd = sys::open_beneath(base_, directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!fd) return {};
    auto names = sys::list_dir(fd->get());
    if (!names) return {};
    return *std::move(names);
  }

  void visit(const std::string& directory, bool is_known) {
    // the index in units_ of each entry that consists of files, by the name of its unit
    std::map<std::string, std::size_t> groups;
    for (const sys::DirEntry& name : names_in(directory)) {
      const std::string path = join_path(directory, name.name);
      const bool is_dir = name.type == DT_DIR;
      const auto ref = entries_.find(path);
      if (row_of(entries_.class_of(path)).is_a_file_alone) continue;
      if (ref && !is_dir && !ref->rule->is_directory()) {
        const auto [at, added] = groups.try_emplace(ref->unit(), units_.size());
        if (added) units_.push_back({ref->unit(), {}, 0, 0, 0});
        add(units_[at->second], path);
      } else if (is_known && is_dir && !(ref && ref->is_entry_directory())) {
        visit(path, true);
      } else {
        units_.push_back({path, {}, 0, 0, 0});
        add(units_.back(), path);
      }
    }
  }

  void add(BaseUnit& unit, const std::string& path) {
    unit.paths.push_back(path);
    measure(unit, path);
  }

  // Uses no recursion, because a publisher may make trees of any depth.
  void measure(BaseUnit& unit, const std::string& path) const {
    std::vector<std::string> paths{path};
    while (!paths.empty()) {
      const std::string one = std::move(paths.back());
      paths.pop_back();
      measure_one(unit, one, paths);
    }
  }

  void measure_one(BaseUnit& unit, const std::string& path, std::vector<std::string>& further) const {
    const auto object = sys::open_beneath(base_, path, O_PATH | O_NOFOLLOW);
    const auto st = object ? sys::stat_fd(object->get()) : object.error();
    if (!st) return;
    ++unit.files;
    unit.bytes += static_cast<std::uint64_t>(st->st_blocks) * kBlockBytes;
    if (!S_ISDIR(st->st_mode)) {
      unit.last_use = std::max({unit.last_use, st->st_atime, st->st_mtime});
      return;
    }
    const auto names = sys::list_dir(object->get());
    if (!names) return;
    if (names->empty()) unit.last_use = std::max(unit.last_use, st->st_mtime);
    for (const sys::DirEntry& name : *names) further.push_back(join_path(path, name.name));
  }

  const int base_;
  const EntryMap& entries_;
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
  return Lister(store.base(), entries).list();
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
  return store.audit().append(std::move(record));
}

std::time_t trashed_since(std::string_view name) {
  std::time_t since = 0;
  (void)std::from_chars(name.data(), name.data() + name.size(), since);
  return since;
}

void sweep_trash(const Store& store, std::time_t keep_seconds) {
  const auto names = sys::list_dir(store.trash());
  if (!names) return;
  const std::time_t oldest = std::time(nullptr) - keep_seconds;
  for (const sys::DirEntry& name : *names) {
    if (trashed_since(name.name) > oldest) continue;
    (void)sys::remove_tree(store.trash(), name.name);  // if this fails, the next sweep tries again
  }
}

}  // namespace cacheshim
