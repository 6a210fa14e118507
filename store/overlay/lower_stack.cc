// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/lower_stack.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "store/sys/paths.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

bool is_device_whiteout(const struct stat& st) {
  return cacheshim::is_device_whiteout(st.st_mode, st.st_rdev);
}

bool is_device_whiteout(int directory, const sys::DirEntry& entry) {
  if (entry.type != DT_CHR && entry.type != DT_UNKNOWN) return false;
  const auto st = sys::stat_at(directory, entry.name);
  return st && is_device_whiteout(*st);
}

bool has_name(int directory, const std::string& name) {
  return static_cast<bool>(sys::stat_at(directory, name));
}

bool is_opaque(int directory) {
  if (has_name(directory, std::string(kOpaqueMarker))) return true;
  for (const char* name : {"trusted.overlay.opaque", "user.overlay.opaque"}) {
    const auto value = sys::get_xattr(directory, name);
    if (value && *value == "y") return true;
  }
  return false;
}

constexpr int kOpenDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

// Collects the names of a merged directory. Call add() for its lower directories, topmost first.
class MergedNames {
 public:
  // Adds the names of the open directory, except those that an earlier directory has or hides.
  Status add(int directory, bool is_last) {
    CACHESHIM_TRY(entries, sys::read_dir(directory));
    std::vector<std::string> hidden_below;
    for (sys::DirEntry& entry : entries) {
      if (is_reserved_name(entry.name)) {
        hidden_below.push_back(std::move(entry.name));
      } else if (is_seen(entry.name)) {
        continue;
      } else if (is_device_whiteout(directory, entry)) {
        hidden_below.push_back(whiteout_name(entry.name));
      } else {
        if (!is_last) names_.insert(entry.name);
        merged_.push_back(std::move(entry));
      }
    }
    for (std::string& marker : hidden_below) markers_.insert(std::move(marker));
    return {};
  }
  std::vector<sys::DirEntry> take() { return std::move(merged_); }

 private:
  bool is_seen(const std::string& name) const {
    if (names_.contains(name)) return true;
    return !markers_.empty() && markers_.contains(whiteout_name(name));
  }

  std::vector<sys::DirEntry> merged_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> markers_;
};

}  // namespace

LowerStack::LowerStack(const std::vector<int>& directories)
    : LowerStack(directories,
                 directories.size() == 1 ? ServerMisses::make(directories.front()) : nullptr) {}

LowerStack::LowerStack(const std::vector<int>& directories,
                       std::unique_ptr<ServerMisses> server_misses)
    : directories_(directories), server_misses_(std::move(server_misses)) {
  roots_.reserve(directories.size());
  for (const int directory : directories) roots_.emplace_back(directory);
  for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory) {
    const auto st = sys::stat_fd(*directory);
    devices_.push_back(st ? st->st_dev : 0);
  }
}

std::optional<std::size_t> LowerStack::find_device(dev_t device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  if (found == devices_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - devices_.begin());
}

std::optional<dev_t> LowerStack::device_of(std::size_t lower) const {
  return lower < devices_.size() ? std::optional(devices_[lower]) : std::nullopt;
}

// NFS returns ESTALE if another machine removes an object after this machine has looked up its name.
template <class Lookup>
std::invoke_result_t<Lookup> LowerStack::find_on_server(const std::string& path,
                                                        Lookup&& lookup) const {
  auto found = lookup();
  if (found || server_misses_ == nullptr) return found;
  const bool is_stale = found.failed_with(ESTALE);
  if (!is_stale && !found.failed_with(ENOENT)) return found;
  if (is_stale) server_misses_->expect(path);
  if (server_misses_->renew(path)) found = lookup();
  if (found.failed_with(ESTALE)) return Errno(ENOENT);
  return found;
}

Result<struct stat> LowerStack::find(const std::string& path) const {
  if (directories_.size() > 1) {
    CACHESHIM_TRY(directories, open_directories(parent_path(path)));
    if (path.empty()) return sys::stat_fd(directories.front().fd.get());
    const std::string name(base_name(path));
    CACHESHIM_TRY(object, find_topmost(directories, name));
    CACHESHIM_TRY(st, sys::stat_fd(object.fd.get()));
    if (!S_ISDIR(st.st_mode)) return st;
    // Subdirectories of a merged directory are not counted, as with overlayfs.
    CACHESHIM_TRY(merged, descend(directories, name));
    if (merged.size() > 1) st.st_nlink = 1;
    return st;
  }
  const auto st = find_on_server(path, [&] { return roots_.front().stat(path); });
  if (st && is_device_whiteout(*st)) return Errno(ENOENT);
  return st;
}

Result<LowerStack::Object> LowerStack::open(const std::string& path, int flags) const {
  if (directories_.size() > 1) {
    CACHESHIM_TRY(object, open_merged(path));
    if ((flags & O_PATH) != 0 && (flags & O_DIRECTORY) == 0) return object;
    CACHESHIM_TRY(opened, sys::reopen(object.fd.get(), flags & ~O_NOFOLLOW));
    return Object{std::move(opened), object.lower};
  }
  CACHESHIM_TRY(fd, find_on_server(path, [&] {
    return sys::open_beneath(directories_.front(), path, flags | O_NOFOLLOW);
  }));
  return Object{std::move(fd), 0};
}

Result<LowerStack::Object> LowerStack::open_merged(const std::string& path) const {
  CACHESHIM_TRY(directories, open_directories(parent_path(path)));
  if (path.empty()) return std::move(directories.front());
  const std::string name(base_name(path));
  return find_topmost(directories, name);
}

Result<LowerStack::Object> LowerStack::find_topmost(const Directories& directories,
                                                    const std::string& name) {
  for (const Object& directory : directories) {
    Result<UniqueFd> fd = sys::open_beneath(directory.fd.get(), name, O_PATH | O_NOFOLLOW);
    if (fd) {
      CACHESHIM_TRY(st, sys::stat_fd(fd->get()));
      if (is_device_whiteout(st)) return Errno(ENOENT);
      return Object{*std::move(fd), directory.lower};
    }
    if (!fd.failed_with(ENOENT)) return fd.error();
    if (hides_below(directory, name)) break;
  }
  return Errno(ENOENT);
}

Result<LowerStack::Directories> LowerStack::open_directories(std::string_view path) const {
  Directories directories;
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    CACHESHIM_TRY(fd, sys::open_beneath(directories_[i], "", O_PATH | O_DIRECTORY));
    const std::size_t lower = directories_.size() - 1 - i;
    const bool hides_further = lower > 0 && is_opaque(fd.get());
    directories.push_back({std::move(fd), lower});
    if (hides_further) break;
  }
  while (!path.empty()) {
    CACHESHIM_TRY(below, descend(directories, std::string(take_component(path))));
    directories = std::move(below);
  }
  return directories;
}

// Returns the lower directories that are merged into the directory `name` of the merged directory
// `directories`.
Result<LowerStack::Directories> LowerStack::descend(const Directories& directories,
                                                    const std::string& name) {
  Directories below;
  for (const Object& directory : directories) {
    Result<UniqueFd> child = sys::open_beneath(directory.fd.get(), name, O_PATH | O_NOFOLLOW);
    if (!child && !child.failed_with(ENOENT)) return child.error();
    if (child) {
      CACHESHIM_TRY(st, sys::stat_fd(child->get()));
      if (S_ISLNK(st.st_mode) && below.empty()) return Errno(ELOOP);
      if (!S_ISDIR(st.st_mode) && !is_device_whiteout(st) && below.empty()) return Errno(ENOTDIR);
      if (!S_ISDIR(st.st_mode)) break;
      const bool hides_further = directory.lower > 0 && is_opaque(child->get());
      below.push_back({*std::move(child), directory.lower});
      if (hides_further) break;
    }
    if (hides_below(directory, name)) break;
  }
  if (below.empty()) return Errno(ENOENT);
  return below;
}

// Whether `directory` has a whiteout of `name` and is not in the bottommost lower.
bool LowerStack::hides_below(const Object& directory, const std::string& name) {
  return directory.lower > 0 && has_name(directory.fd.get(), whiteout_name(name));
}

Result<std::vector<sys::DirEntry>> LowerStack::list(const std::string& path) const {
  MergedNames names;
  if (directories_.size() == 1) {
    if (server_misses_ != nullptr) server_misses_->renew_directory(path);
    CACHESHIM_TRY(directory, sys::open_beneath(directories_.front(), path, kOpenDirectory));
    CACHESHIM_CHECK(names.add(directory.get(), true));
    return names.take();
  }
  CACHESHIM_TRY(directories, open_directories(path));
  for (const Object& directory : directories) {
    CACHESHIM_TRY(readable, sys::open_beneath(directory.fd.get(), "", kOpenDirectory));
    CACHESHIM_CHECK(names.add(readable.get(), &directory == &directories.back()));
  }
  return names.take();
}

}  // namespace cacheshim
