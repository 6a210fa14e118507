// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/layer_units.h"

#include <sys/stat.h>

#include <map>

#include "store/sys/tree_walk.h"
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

class LayerLister {
 public:
  LayerLister(int upper, const EntryMap& entries) : upper_(upper), entries_(entries) {}

  LayerContent list() {
    // If an object cannot be read, it is not counted.
    (void)walk_tree(upper_, "", [this](const WalkedDirectory& directory) {
      visit(directory);
      return Status();
    });
    LayerContent content;
    for (auto& [unit, found] : units_) content.units.push_back(found);
    content.removed = removed_;
    return content;
  }

 private:
  void visit(const WalkedDirectory& directory) {
    for (const sys::DirEntry& name : directory.entries) {
      if (is_reserved_name(name.name)) {
        if (name.name != kOpaqueMarker) ++removed_;
      } else if (is_directory(directory.fd, name)) {
        directory.further.push_back(name.name);
      } else if (const auto st = sys::stat_at(directory.fd, name.name)) {
        add(join_path(directory.path, name.name), *st);
      }
    }
  }

  void add(const std::string& path, const struct stat& st) {
    const std::string unit = unit_of(entries_, path);
    LayerUnit& found = units_[unit];
    found.unit = unit;
    ++found.files;
    found.bytes += S_ISREG(st.st_mode) ? static_cast<std::uint64_t>(st.st_size) : 0;
  }

  const int upper_;
  const EntryMap& entries_;
  std::map<std::string, LayerUnit> units_;
  std::uint64_t removed_ = 0;
};

}  // namespace

LayerContent list_layer(const Overlay& overlay, const EntryMap& entries) {
  const ReaderLock lock(overlay.mutex());
  if (!overlay.has_layer()) return {};
  return LayerLister(overlay.upper(), entries).list();
}

}  // namespace cacheshim
