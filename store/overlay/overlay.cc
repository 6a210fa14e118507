// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/overlay.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <string_view>
#include <unordered_set>
#include <utility>

#include "store/overlay/copy_up.h"
#include "store/sys/file_system.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

bool is_missing(const Errno& error) { return error == ENOENT || error == ENOTDIR; }

bool has_other_names(const struct stat& st) { return S_ISREG(st.st_mode) && st.st_nlink > 1; }

// Whether the layer hides all that the lowers have in this directory.
bool hides_content(const LayerIndex& index, const std::string& directory) {
  return index.place_of(directory).hides_lowers || index.is_opaque(directory);
}

// Whether an NFS client has given this name to a file that was removed while it was open (fs/nfs/unlink.c).
bool is_silly_name(std::string_view name) {
  constexpr std::string_view kPrefix = ".nfs";
  constexpr std::size_t kDigits = 24;
  return name.starts_with(kPrefix) && name.size() == kPrefix.size() + kDigits &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == name.npos;
}

}  // namespace

Overlay::Overlay(std::shared_ptr<const LowerStack> lowers, const EntryMap& entries,
                 Counters& counters, OverlayObserver* observer, OverlayOptions options)
    : state(std::move(lowers), entries, counters, observer, options) {}

Overlay::Overlay(const std::vector<int>& lowers, const EntryMap& entries, Counters& counters,
                 OverlayObserver* observer, OverlayOptions options)
    : Overlay(std::make_shared<const LowerStack>(lowers), entries, counters, observer, options) {}

void Overlay::set_layer(UniqueFd upper, UniqueFd work) {
  state.upper = std::move(upper);
  state.work = state.upper ? std::make_shared<const UniqueFd>(std::move(work)) : nullptr;
  state.upper_paths = state.upper ? std::make_unique<PathRoot>(state.upper.get()) : nullptr;
  state.is_upper_local = !state.upper || is_local_file_system(state.upper.get());
  state.index.clear();
  state.links.clear();
  state.origins.clear();
  state.staged.set_work(state.work);
}

Result<Located> Overlay::locate(const std::string& path) const {
  return state.locks.files.is_shared_name(path) ? locate_lock(path) : locate_merged(path);
}

// Finds the base's lock file at `path`, or an object of this name that is not a regular file. Ignores a regular file of
// the layer: it may be left from a time when the job did not publish and its lock files were in the layer.
Result<Located> Overlay::locate_lock(const std::string& path) const {
  Result<LockFiles::Object> lock = state.locks.files.find(path);
  if (lock) return Located{lock->st, Where::kLock, {}, std::move(lock->fd)};
  Result<Located> other = locate_merged(path);
  if (other && S_ISREG(other->st.st_mode)) return Errno(ENOENT);
  return other;
}

Result<Located> Overlay::locate_merged(const std::string& path) const {
  if (is_reserved_name(base_name(path))) return Errno(ENOENT);
  const LayerIndex::Place place = state.index.place_of(path);
  if (state.upper && place.in_layer) {
    Result<struct stat> upper = state.upper_paths->stat(path);
    if (upper) {
      state.links.correct_links(*upper);
      return Located{*upper, Where::kUpper, {}, {}};
    }
    if (!upper.failed_with(ENOENT)) return upper.error();
  }
  if (place.hides_lowers || state.is_store_record(path)) return Errno(ENOENT);
  CACHESHIM_TRY(st, state.lowers->find(path));
  if (state.links.is_empty() || !has_other_names(st)) return Located{st, Where::kLowers, {}, {}};
  return locate_linked(path, st);
}

// Locates a file of the base that has other names, one of which may have been copied up or hidden.
Result<Located> Overlay::locate_linked(const std::string& path, const struct stat& st) const {
  CACHESHIM_TRY(key, link_key(*this, path));
  const LinkIndex::File* const file = state.links.find(key);
  Located located{st, Where::kLowers, std::move(key), {}};
  if (file == nullptr) return located;
  if (!file->has_copy) {
    located.st.st_nlink = file->names_left;
    return located;
  }
  CACHESHIM_TRY(copy, state.links.stat_copy(located.key));
  located.st = copy;
  located.where = Where::kIndex;
  return located;
}

Result<Found> Overlay::find(const std::string& path) const {
  CACHESHIM_TRY(located, locate(path));
  if (S_ISDIR(located.st.st_mode)) located.st.st_nlink = count_directory_links(path, located);
  auto origin = located.in_upper() ? state.origins.find(located.st.st_ino) : std::nullopt;
  return Found{located.st, located.in_upper(), std::move(origin), std::move(located.lock)};
}

// If only the base or only the layer has a directory, the file system's count of its subdirectories is right: if the
// layer hid a subdirectory, the whiteout would be in the layer's directory of the same name. A merged directory shows
// 1 ("not counted"), as with overlayfs and btrfs, because an exact count would require listing the directory in the
// layer and in all lowers.
nlink_t Overlay::count_directory_links(const std::string& path, const Located& found) const {
  constexpr nlink_t kNotCounted = 1;
  if (!state.options.keep_owner) return kNotCounted;  // View::show() shows no counts
  if (path.empty()) return kNotCounted;               // the root is merged, or contains the store's records
  if (found.where == Where::kLowers) return found.st.st_nlink;
  if (state.index.is_opaque(path) || !find_in_base(path)) return found.st.st_nlink;
  return kNotCounted;
}

Result<struct stat> Overlay::find_in_base(const std::string& path) const {
  if (state.index.place_of(path).hides_lowers || state.is_store_record(path)) return Errno(ENOENT);
  return state.lowers->find(path);
}

Result<Opened> Overlay::open(const std::string& path, int flags) const {
  if (!state.locks.files.is_shared_name(path)) return open_merged(path, flags);
  CACHESHIM_TRY(located, locate_lock(path));
  if (located.where != Where::kLock) return open_merged(path, flags);
  CACHESHIM_TRY(fd, state.locks.files.open(path, flags));
  return Opened{std::move(fd), false, true, state.locks.files.most_bytes(path)};
}

Result<Opened> Overlay::open_merged(const std::string& path, int flags) const {
  if (is_reserved_name(base_name(path))) return Errno(ENOENT);
  // O_NONBLOCK: opening a FIFO must not block the daemon.
  const int safe_flags = ((flags & O_PATH) != 0 ? flags : flags | O_NONBLOCK) | O_NOFOLLOW;
  const LayerIndex::Place place = state.index.place_of(path);
  if (state.upper && place.in_layer) {
    Result<UniqueFd> upper = sys::open_beneath(state.upper.get(), path, safe_flags);
    if (upper) return Opened{*std::move(upper), true};
    if (!upper.failed_with(ENOENT)) return upper.error();
  }
  if (place.hides_lowers || state.is_store_record(path)) return Errno(ENOENT);
  return open_lower(path, safe_flags);
}

Result<Opened> Overlay::open_lower(const std::string& path, int flags) const {
  CACHESHIM_TRY(object, state.lowers->open(path, flags));
  if (!state.links.is_empty()) {
    CACHESHIM_TRY(st, sys::stat_fd(object.fd.get()));
    if (has_other_names(st)) {
      CACHESHIM_TRY(key, LinkIndex::key_of(object.fd.get(), object.lower));
      const LinkIndex::File* const file = state.links.find(key);
      if (file != nullptr && file->has_copy) {
        CACHESHIM_TRY(copy, state.links.open_copy(key, flags));
        return Opened{std::move(copy), true};
      }
    }
  }
  return Opened{std::move(object.fd), false};
}

Result<std::string> Overlay::read_link(const std::string& path) const {
  CACHESHIM_TRY(opened, open(path, O_PATH));
  return sys::read_link_at(opened.fd.get(), "");
}

Result<std::string> Overlay::get_xattr(const std::string& path, const char* name) const {
  if (state.upper && !is_reserved_name(base_name(path)) && state.index.place_of(path).in_layer) {
    auto value = state.upper_paths->at(path, [&](int dir, const std::string& object) {
      return sys::get_xattr_at(dir, object, name);
    });
    if (!value.failed_with(ENOENT)) return value;
  }
  CACHESHIM_TRY(opened, open(path, O_PATH));
  return sys::get_xattr(opened.fd.get(), name);
}

// Lists the layer's own directory at `path`, without whiteouts and markers.
Result<std::vector<ListedEntry>> Overlay::list_upper(const std::string& path) const {
  CACHESHIM_TRY(directory,
                sys::open_beneath(state.upper.get(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  CACHESHIM_TRY(entries, sys::read_dir(directory.get()));
  const bool hides_silly = !state.is_upper_local;
  std::erase_if(entries, [&](const ListedEntry& entry) {
    return is_reserved_name(entry.name) || (hides_silly && is_silly_name(entry.name));
  });
  if (state.origins.is_empty()) return entries;
  for (ListedEntry& entry : entries) {
    const auto origin = state.origins.find(entry.ino);
    if (!origin) continue;
    entry.device = origin->device;
    entry.ino = origin->inode;
  }
  return entries;
}

Result<std::vector<ListedEntry>> Overlay::list(const std::string& path) const {
  auto listed = list_merged(path);
  if (listed) state.locks.files.adjust(path, hides_content(state.index, path), *listed);
  return listed;
}

Result<std::vector<ListedEntry>> Overlay::list_merged(const std::string& path) const {
  std::vector<ListedEntry> listed;
  const bool in_upper = state.upper && state.index.has_directory(path);
  if (in_upper) {
    CACHESHIM_TRY(entries, list_upper(path));
    listed = std::move(entries);
  }
  if (hides_content(state.index, path) || state.is_store_record(path)) {
    if (!in_upper) return Errno(ENOENT);
    return listed;
  }
  Result<std::vector<ListedEntry>> below = state.lowers->list(path);
  if (!below && in_upper && is_missing(below.error())) return listed;
  if (!below) return below.error();
  if (!in_upper && !path.empty()) return below;
  add_from_base(path, *std::move(below), listed);
  return listed;
}

void Overlay::add_from_base(const std::string& path, std::vector<ListedEntry> below,
                            std::vector<ListedEntry>& listed) const {
  std::unordered_set<std::string> in_upper;
  for (const ListedEntry& entry : listed) in_upper.insert(entry.name);
  const bool has_whiteouts = state.index.has_whiteouts_in(path);
  for (ListedEntry& entry : below) {
    if (in_upper.contains(entry.name)) continue;
    if (has_whiteouts && state.index.has_whiteout(join_path(path, entry.name))) continue;
    if (path.empty() && state.is_store_record(entry.name)) continue;
    listed.push_back(std::move(entry));
  }
}

std::string Overlay::why_hidden(const std::string& path) const {
  if (!state.upper) return "";
  const LayerIndex::Place place = state.index.place_of(path);
  const std::string hider(place.hider);
  if (place.is_whiteout) return "the job has removed '" + hider + "'";
  if (!hider.empty()) {
    return "the job has begun '" + hider + "' itself, or made it anew, so it sees only its own files there";
  }
  const auto own = sys::open_beneath(state.upper.get(), path, O_PATH | O_NOFOLLOW);
  const auto st = own ? sys::stat_fd(own->get()) : own.error();
  return st && !S_ISDIR(st->st_mode) ? "the job has a file of its own there" : "";
}

}  // namespace cacheshim
