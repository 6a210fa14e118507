// SPDX-License-Identifier: Apache-2.0
#include "store/layer/layer_index.h"

#include <utility>
#include <vector>

#include "store/sys/paths.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

// The key of a whiteout, the text after ".wh." in its marker: the name itself except for very long
// names.
std::string_view key_of_marker(std::string_view marker) {
  return marker.substr(kWhiteoutPrefix.size());
}

class WhiteoutKey {
 public:
  explicit WhiteoutKey(std::string_view name) : key_(name) {
    if (!needs_encoding(name)) return;
    encoded_ = whiteout_name(name);
    key_ = key_of_marker(encoded_);
  }
  WhiteoutKey(const WhiteoutKey&) = delete;
  WhiteoutKey& operator=(const WhiteoutKey&) = delete;
  std::string_view get() const { return key_; }

 private:
  std::string encoded_;
  std::string_view key_;
};

}  // namespace

LayerIndex::Folder::~Folder() {
  std::vector<std::unique_ptr<Folder>> doomed;
  const auto take_folders = [&](Folder& folder) {
    for (auto& [name, child] : folder.folders) doomed.push_back(std::move(child));
    folder.folders.clear();
  };
  take_folders(*this);
  while (!doomed.empty()) {
    const std::unique_ptr<Folder> folder = std::move(doomed.back());
    doomed.pop_back();
    take_folders(*folder);
  }
}

LayerIndex::Place LayerIndex::place_of(std::string_view path) const {
  Place place;
  const Folder* folder = &root_;
  if (path.empty()) return {true, false};
  const ReaderLock lock(mutex_);
  for (;;) {
    const std::string_view name = take_component(path);
    if (folder->opaque) place.hides_lowers = true;
    if (!folder->whiteouts.empty() && folder->whiteouts.contains(WhiteoutKey(name).get())) {
      place.hides_lowers = true;
    }
    if (path.empty()) {
      place.in_layer = true;
      return place;
    }
    const auto child = folder->folders.find(name);
    if (child == folder->folders.end()) return place;
    folder = child->second.get();
  }
}

const LayerIndex::Folder* LayerIndex::find(std::string_view path) const {
  const Folder* folder = &root_;
  while (!path.empty()) {
    const auto child = folder->folders.find(take_component(path));
    if (child == folder->folders.end()) return nullptr;
    folder = child->second.get();
  }
  return folder;
}

LayerIndex::Folder* LayerIndex::find(std::string_view path) {
  return const_cast<Folder*>(static_cast<const LayerIndex*>(this)->find(path));
}

bool LayerIndex::has_folder(std::string_view path) const {
  const ReaderLock lock(mutex_);
  return find(path) != nullptr;
}

void LayerIndex::add_folder(std::string_view path) {
  const WriterLock lock(mutex_);
  if (find(path) == nullptr) put(path, std::make_unique<Folder>());
}

void LayerIndex::clear() {
  const WriterLock lock(mutex_);
  root_ = Folder();
}

void LayerIndex::add_whiteout(std::string_view path) {
  const WriterLock lock(mutex_);
  find(parent_path(path))->whiteouts.emplace(WhiteoutKey(base_name(path)).get());
}

void LayerIndex::add_whiteout_marker(std::string_view folder, std::string_view marker) {
  const WriterLock lock(mutex_);
  find(folder)->whiteouts.emplace(key_of_marker(marker));
}

void LayerIndex::remove_whiteout(std::string_view path) {
  const WriterLock lock(mutex_);
  Folder* folder = find(parent_path(path));
  if (folder == nullptr) return;
  const auto found = folder->whiteouts.find(WhiteoutKey(base_name(path)).get());
  if (found != folder->whiteouts.end()) folder->whiteouts.erase(found);
}

bool LayerIndex::has_whiteout(std::string_view path) const {
  const ReaderLock lock(mutex_);
  const Folder* folder = find(parent_path(path));
  return folder != nullptr && folder->whiteouts.contains(WhiteoutKey(base_name(path)).get());
}

bool LayerIndex::has_whiteouts_in(std::string_view path) const {
  const ReaderLock lock(mutex_);
  const Folder* folder = find(path);
  return folder != nullptr && !folder->whiteouts.empty();
}

void LayerIndex::add_opaque(std::string_view path) {
  const WriterLock lock(mutex_);
  find(path)->opaque = true;
}

void LayerIndex::remove_opaque(std::string_view path) {
  const WriterLock lock(mutex_);
  if (Folder* folder = find(path)) folder->opaque = false;
}

bool LayerIndex::is_opaque(std::string_view path) const {
  const ReaderLock lock(mutex_);
  const Folder* folder = find(path);
  return folder != nullptr && folder->opaque;
}

// Returns nothing if the layer has no such directory.
std::unique_ptr<LayerIndex::Folder> LayerIndex::take(std::string_view path) {
  Folder* parent = find(parent_path(path));
  if (parent == nullptr) return nullptr;
  const auto found = parent->folders.find(base_name(path));
  if (found == parent->folders.end()) return nullptr;
  std::unique_ptr<Folder> folder = std::move(found->second);
  parent->folders.erase(found);
  return folder;
}

void LayerIndex::put(std::string_view path, std::unique_ptr<Folder> folder) {
  if (folder) find(parent_path(path))->folders.emplace(base_name(path), std::move(folder));
}

void LayerIndex::erase_tree(std::string_view path) {
  const WriterLock lock(mutex_);
  (void)take(path);  // dropped with everything below
}

void LayerIndex::move_tree(std::string_view from, std::string_view to) {
  const WriterLock lock(mutex_);
  put(to, take(from));
}

void LayerIndex::exchange_trees(std::string_view one, std::string_view other) {
  const WriterLock lock(mutex_);
  std::unique_ptr<Folder> first = take(one);
  std::unique_ptr<Folder> second = take(other);
  put(one, std::move(second));
  put(other, std::move(first));
}

}  // namespace cacheshim
