// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/layer_units.h"

#include <dirent.h>
#include <fcntl.h>

#include <map>

#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

// Returns the unit of `path`. Each object directly in an unknown cache's directory is one unit, as
// in publishing.
std::string unit_of(const EntryMap& entries, const std::string& path) {
  if (const auto ref = entries.find(path)) return ref->unit();
  std::string_view rest = path;
  const std::string_view family = take_component(rest);
  if (entries.find_profile(family) != nullptr) return path;
  return join_path(family, take_component(rest));
}

class Lister {
 public:
  Lister(int upper, const EntryMap& entries) : upper_(upper), entries_(entries) {}

  LayerContent list() {
    directories_.emplace_back();
    while (!directories_.empty()) {  // no recursion: a job may create trees of any depth
      const std::string directory = std::move(directories_.back());
      directories_.pop_back();
      visit(directory);
    }
    LayerContent content;
    for (auto& [unit, found] : units_) content.units.push_back(found);
    content.removed = removed_;
    return content;
  }

 private:
  void visit(const std::string& directory) {
    const auto fd = sys::open_beneath(upper_, directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    const auto names = fd ? sys::list_dir(fd->get()) : fd.error();
    if (!names) return;
    for (const sys::DirEntry& name : *names) {
      const std::string path = join_path(directory, name.name);
      if (is_reserved_name(name.name)) {
        if (name.name != kOpaqueMarker) ++removed_;
      } else if (name.type == DT_DIR) {
        directories_.push_back(path);
      } else {
        add(path);
      }
    }
  }

  void add(const std::string& path) {
    const auto object = sys::open_beneath(upper_, path, O_PATH | O_NOFOLLOW);
    const auto st = object ? sys::stat_fd(object->get()) : object.error();
    if (!st) return;
    const std::string unit = unit_of(entries_, path);
    LayerUnit& found = units_[unit];
    found.unit = unit;
    ++found.files;
    found.bytes += S_ISREG(st->st_mode) ? static_cast<std::uint64_t>(st->st_size) : 0;
  }

  const int upper_;
  const EntryMap& entries_;
  std::map<std::string, LayerUnit> units_;
  std::uint64_t removed_ = 0;
  std::vector<std::string> directories_;  // directories that are still to be visited
};

}  // namespace

LayerContent list_layer(const Overlay& overlay, const EntryMap& entries) {
  const ReaderLock lock(overlay.mutex());
  if (!overlay.has_layer()) return {};
  return Lister(overlay.upper(), entries).list();
}

}  // namespace cacheshim
