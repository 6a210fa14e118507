// SPDX-License-Identifier: Apache-2.0
#include "store/layer/layer_index.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "store/sys/paths.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

// Returns the key of a whiteout: the text after ".wh." in the marker's name. The key is the whited-out
// name, unless that name has more than 251 bytes (whiteout.h).
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

LayerIndex::Directory::~Directory() {
  std::vector<std::unique_ptr<Directory>> doomed;
  const auto take_directories = [&](Directory& directory) {
    for (auto& [name, child] : directory.directories) doomed.push_back(std::move(child));
    directory.directories.clear();
  };
  take_directories(*this);
  while (!doomed.empty()) {
    const std::unique_ptr<Directory> directory = std::move(doomed.back());
    doomed.pop_back();
    take_directories(*directory);
  }
}

LayerIndex::Place LayerIndex::place_of(std::string_view path) const {
  Place place;
  const Directory* directory = &root_;
  if (path.empty()) return {true, false};
  const auto hide = [&, begin = path.data()](const char* end, bool is_whiteout) {
    place.hides_lowers = true;
    place.hider = {begin, static_cast<std::size_t>(end - begin)};
    place.is_whiteout = is_whiteout;
  };
  const char* above = path.data();  // where the path of `directory` ends
  const ReaderLock lock(mutex_);
  for (;;) {
    const std::string_view name = take_component(path);
    const char* const end = name.data() + name.size();
    if (directory->opaque) hide(above, false);
    if (!directory->whiteouts.empty() && directory->whiteouts.contains(WhiteoutKey(name).get())) {
      hide(end, true);
    }
    if (path.empty()) {
      place.in_layer = true;
      return place;
    }
    const auto child = directory->directories.find(name);
    if (child == directory->directories.end()) return place;
    directory = child->second.get();
    above = end;
  }
}

const LayerIndex::Directory* LayerIndex::find(std::string_view path) const {
  const Directory* directory = &root_;
  while (!path.empty()) {
    const auto child = directory->directories.find(take_component(path));
    if (child == directory->directories.end()) return nullptr;
    directory = child->second.get();
  }
  return directory;
}

LayerIndex::Directory* LayerIndex::find(std::string_view path) {
  return const_cast<Directory*>(static_cast<const LayerIndex*>(this)->find(path));
}

bool LayerIndex::has_directory(std::string_view path) const {
  const ReaderLock lock(mutex_);
  return find(path) != nullptr;
}

void LayerIndex::add_directory(std::string_view path) {
  const WriterLock lock(mutex_);
  if (find(path) == nullptr) put(path, std::make_unique<Directory>());
}

void LayerIndex::clear() {
  const WriterLock lock(mutex_);
  root_ = Directory();
}

void LayerIndex::add_whiteout(std::string_view path) {
  const WriterLock lock(mutex_);
  find(parent_path(path))->whiteouts.emplace(WhiteoutKey(base_name(path)).get());
}

void LayerIndex::remove_whiteout(std::string_view path) {
  const WriterLock lock(mutex_);
  Directory* directory = find(parent_path(path));
  if (directory == nullptr) return;
  const auto found = directory->whiteouts.find(WhiteoutKey(base_name(path)).get());
  if (found != directory->whiteouts.end()) directory->whiteouts.erase(found);
}

bool LayerIndex::has_whiteout(std::string_view path) const {
  const ReaderLock lock(mutex_);
  const Directory* directory = find(parent_path(path));
  return directory != nullptr && directory->whiteouts.contains(WhiteoutKey(base_name(path)).get());
}

bool LayerIndex::has_whiteouts_in(std::string_view path) const {
  const ReaderLock lock(mutex_);
  const Directory* directory = find(path);
  return directory != nullptr && !directory->whiteouts.empty();
}

void LayerIndex::add_opaque(std::string_view path) {
  const WriterLock lock(mutex_);
  find(path)->opaque = true;
}

void LayerIndex::remove_opaque(std::string_view path) {
  const WriterLock lock(mutex_);
  if (Directory* directory = find(path)) directory->opaque = false;
}

bool LayerIndex::is_opaque(std::string_view path) const {
  const ReaderLock lock(mutex_);
  const Directory* directory = find(path);
  return directory != nullptr && directory->opaque;
}

// Removes a directory, with everything below it, from the index and returns it. Returns null if the
// layer has no such directory.
std::unique_ptr<LayerIndex::Directory> LayerIndex::take(std::string_view path) {
  Directory* parent = find(parent_path(path));
  if (parent == nullptr) return nullptr;
  const auto found = parent->directories.find(base_name(path));
  if (found == parent->directories.end()) return nullptr;
  std::unique_ptr<Directory> directory = std::move(found->second);
  parent->directories.erase(found);
  return directory;
}

void LayerIndex::put(std::string_view path, std::unique_ptr<Directory> directory) {
  if (directory)
    find(parent_path(path))->directories.emplace(base_name(path), std::move(directory));
}

void LayerIndex::erase_tree(std::string_view path) {
  const WriterLock lock(mutex_);
  (void)take(path);  // drops the directory with everything below it
}

void LayerIndex::move_tree(std::string_view from, std::string_view to) {
  const WriterLock lock(mutex_);
  put(to, take(from));
}

std::size_t LayerIndex::longest_below(std::string_view path) const {
  const ReaderLock lock(mutex_);
  const Directory* const top = find(path);
  std::size_t longest = 0;
  std::vector<std::pair<const Directory*, std::size_t>> waiting;  // with the length of their paths
  if (top != nullptr) waiting.emplace_back(top, 0);
  while (!waiting.empty()) {
    const auto [directory, bytes] = waiting.back();
    waiting.pop_back();
    for (const auto& [name, child] : directory->directories) {
      const std::size_t length = bytes + (bytes == 0 ? 0 : 1) + name.size();
      longest = std::max(longest, length);
      waiting.emplace_back(child.get(), length);
    }
  }
  return longest;
}

// Begins at the deepest directory that `path` shares with the previous path. Adds missing directories.
LayerIndex::Directory& LayerIndex::Loader::find(std::string_view path) {
  const auto is_above = [&](std::size_t length) {
    return length <= path.size() &&
           path.substr(0, length) == std::string_view(last_).substr(0, length) &&
           (length == path.size() || path[length] == '/');
  };
  while (!trail_.empty() && !is_above(trail_.back().first)) trail_.pop_back();
  Directory* directory = trail_.empty() ? &index_.root_ : trail_.back().second;
  std::size_t length = trail_.empty() ? 0 : trail_.back().first;
  std::string_view rest = path.substr(std::min(path.size(), length == 0 ? 0 : length + 1));
  while (!rest.empty()) {
    const std::string_view name = take_component(rest);
    length += (length == 0 ? 0 : 1) + name.size();
    auto& child = directory->directories[std::string(name)];
    if (!child) child = std::make_unique<Directory>();
    directory = child.get();
    trail_.emplace_back(length, directory);
  }
  last_ = path;
  return *directory;
}

void LayerIndex::Loader::add_directory(std::string_view path) {
  const WriterLock lock(index_.mutex_);
  auto& child = find(parent_path(path)).directories[std::string(base_name(path))];
  if (!child) child = std::make_unique<Directory>();
}

void LayerIndex::Loader::add_opaque(std::string_view path) {
  const WriterLock lock(index_.mutex_);
  find(path).opaque = true;
}

void LayerIndex::Loader::add_whiteout_marker(std::string_view directory, std::string_view marker) {
  const WriterLock lock(index_.mutex_);
  find(directory).whiteouts.emplace(key_of_marker(marker));
}

void LayerIndex::exchange_trees(std::string_view one, std::string_view other) {
  const WriterLock lock(mutex_);
  std::unique_ptr<Directory> first = take(one);
  std::unique_ptr<Directory> second = take(other);
  put(one, std::move(second));
  put(other, std::move(first));
}

}  // namespace cacheshim
