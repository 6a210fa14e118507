// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/overlay.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>

#include <unordered_set>
#include <utility>

#include "common/names.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

// Looking: what is there, in which of the two layers, and what a directory lists.
namespace cacheshim {
namespace {

bool is_missing(const Errno& error) { return error == ENOENT || error == ENOTDIR; }

bool has_other_names(const struct stat& st) { return S_ISREG(st.st_mode) && st.st_nlink > 1; }

}  // namespace

Overlay::Overlay(std::shared_ptr<const LowerStack> lowers, const EntryMap& entries,
                 Counters& counters, OverlayObserver* observer, OverlayOptions options)
    : lowers_(std::move(lowers)),
      entries_(entries),
      counters_(counters),
      observer_(observer),
      options_(options),
      origins_(*lowers_),
      locks_(entries),
      staged_(observer, options.keep_owner) {}

Overlay::Overlay(const std::vector<int>& lowers, const EntryMap& entries, Counters& counters,
                 OverlayObserver* observer, OverlayOptions options)
    : Overlay(std::make_shared<const LowerStack>(lowers), entries, counters, observer, options) {}

void Overlay::set_layer(UniqueFd upper, UniqueFd work) {
  upper_ = std::move(upper);
  work_ = upper_ ? std::make_shared<const UniqueFd>(std::move(work)) : nullptr;
  upper_paths_ = upper_ ? std::make_unique<PathRoot>(upper_.get()) : nullptr;
  index_.clear();
  links_.clear();
  origins_.clear();
  staged_.set_work(work_);
}

Result<Overlay::Located> Overlay::locate(const std::string& path) const {
  return locks_.is_shared_name(path) ? locate_lock(path) : locate_merged(path);
}

// A shared lock file; or what has its name and is no regular file. One that the layer has itself, from
// a time when its job did not publish, is not seen.
Result<Overlay::Located> Overlay::locate_lock(const std::string& path) const {
  Result<LockFiles::Object> lock = locks_.find(path);
  if (lock) return Located{lock->st, Where::kLock, {}, std::move(lock->fd)};
  Result<Located> other = locate_merged(path);
  if (other && S_ISREG(other->st.st_mode)) return Errno(ENOENT);
  return other;
}

bool Overlay::is_shared_lock(const std::string& path) const {
  return locks_.is_shared_name(path) && locks_.find(path);
}

Result<UniqueFd> Overlay::open_named_lock(const std::string& path, bool makes) const {
  if (!locks_.may_become_lock(path)) return Errno(ENOENT);
  CACHESHIM_TRY(located, locate_merged(path));
  if (!S_ISREG(located.st.st_mode)) return Errno(EISDIR);
  if (located.st.st_size > kMostLockBytes) return Errno(EFBIG);
  auto known = locks_.open_named(path);
  if (!makes || !known.failed_with(ENOENT)) return known;
  if (row_of(entries_.class_of(path)).is_held_by_existing) return locks_.ensure_named(path);
  constexpr mode_t kOpen = S_IROTH | S_IXOTH;
  for (std::string directory(parent_path(path)); !directory.empty();
       directory = parent_path(directory)) {
    if (lowers_->find(directory)) break;
    CACHESHIM_TRY(above, locate_merged(directory));
    if ((above.st.st_mode & kOpen) != kOpen) return Errno(EACCES);
  }
  return locks_.ensure_named(path);
}

Result<Overlay::Located> Overlay::locate_merged(const std::string& path) const {
  if (is_reserved_name(base_name(path))) return Errno(ENOENT);
  const LayerIndex::Place place = index_.place_of(path);
  if (upper_ && place.in_layer) {
    Result<struct stat> upper = upper_paths_->stat(path);
    if (upper) {
      links_.correct_links(*upper);
      return Located{*upper, Where::kUpper, {}, {}};
    }
    if (!upper.failed_with(ENOENT)) return upper.error();
  }
  if (place.hides_lowers || is_store_record(path)) return Errno(ENOENT);
  CACHESHIM_TRY(st, lowers_->find(path));
  if (links_.is_empty() || !has_other_names(st)) return Located{st, Where::kLowers, {}, {}};
  return locate_linked(path, st);
}

// A file of the base that has other names: one of these may have been copied up or hidden.
Result<Overlay::Located> Overlay::locate_linked(const std::string& path,
                                                const struct stat& st) const {
  CACHESHIM_TRY(key, link_key(path));
  const LinkIndex::File* const file = links_.find(key);
  Located located{st, Where::kLowers, std::move(key), {}};
  if (file == nullptr) return located;
  if (!file->has_copy) {
    located.st.st_nlink = file->names_left;
    return located;
  }
  CACHESHIM_TRY(copy, links_.stat_copy(located.key));
  located.st = copy;
  located.where = Where::kIndex;
  return located;
}

Result<Found> Overlay::find(const std::string& path) const {
  CACHESHIM_TRY(located, locate(path));
  if (S_ISDIR(located.st.st_mode)) located.st.st_nlink = count_directory_links(path, located);
  const bool in_upper = located.where == Where::kUpper || located.where == Where::kIndex;
  auto origin = in_upper ? origins_.find(located.st.st_ino) : std::nullopt;
  return Found{located.st, in_upper, std::move(origin), std::move(located.lock)};
}

// If only one layer has a directory, the file system's count of its subdirectories is right: a name that is
// hidden there has its marker in the layer, which makes the directory a merged one. To count those of a merged
// directory, its layers would have to be listed; 1 says "not counted", as with overlayfs and btrfs.
nlink_t Overlay::count_directory_links(const std::string& path, const Located& found) const {
  constexpr nlink_t kNotCounted = 1;
  if (path.empty()) return kNotCounted;  // merged, or with the store's records in it
  if (found.where == Where::kLowers) return found.st.st_nlink;
  if (index_.is_opaque(path) || !find_in_base(path)) return found.st.st_nlink;
  return kNotCounted;
}

// The store's own records are no part of any view.
bool Overlay::is_store_record(std::string_view path) const {
  if (!options_.has_store_records || !path.starts_with(kControlName)) return false;
  return path.size() == kControlName.size() || path[kControlName.size()] == '/';
}

Result<struct stat> Overlay::find_in_base(const std::string& path) const {
  if (index_.hides_lowers(path) || is_store_record(path)) return Errno(ENOENT);
  return lowers_->find(path);
}

Result<Opened> Overlay::open(const std::string& path, int flags) const {
  if (!locks_.is_shared_name(path)) return open_merged(path, flags);
  CACHESHIM_TRY(located, locate_lock(path));
  if (located.where != Where::kLock) return open_merged(path, flags);
  CACHESHIM_TRY(fd, locks_.open(path, flags));
  return Opened{std::move(fd), false, true, locks_.most_bytes(path)};
}

Result<Opened> Overlay::open_merged(const std::string& path, int flags) const {
  if (is_reserved_name(base_name(path))) return Errno(ENOENT);
  // O_NONBLOCK: a FIFO that has taken the name must not stop the daemon.
  const int safe_flags = ((flags & O_PATH) != 0 ? flags : flags | O_NONBLOCK) | O_NOFOLLOW;
  const LayerIndex::Place place = index_.place_of(path);
  if (upper_ && place.in_layer) {
    Result<UniqueFd> upper = sys::open_beneath(upper_.get(), path, safe_flags);
    if (upper) return Opened{*std::move(upper), true};
    if (!upper.failed_with(ENOENT)) return upper.error();
  }
  if (place.hides_lowers || is_store_record(path)) return Errno(ENOENT);
  return open_lower(path, safe_flags);
}

Result<Opened> Overlay::open_lower(const std::string& path, int flags) const {
  CACHESHIM_TRY(object, lowers_->open(path, flags));
  if (!links_.is_empty()) {
    CACHESHIM_TRY(st, sys::stat_fd(object.fd.get()));
    if (has_other_names(st)) {
      CACHESHIM_TRY(key, LinkIndex::key_of(object.fd.get(), object.lower));
      const LinkIndex::File* const file = links_.find(key);
      if (file != nullptr && file->has_copy) {
        CACHESHIM_TRY(copy, links_.open_copy(key, flags));
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
  if (upper_ && !is_reserved_name(base_name(path)) && index_.place_of(path).in_layer) {
    auto value = upper_paths_->at(path, [&](int dir, const std::string& object) {
      return sys::get_xattr_at(dir, object, name);
    });
    if (!value.failed_with(ENOENT)) return value;
  }
  CACHESHIM_TRY(opened, open(path, O_PATH));
  return sys::get_xattr(opened.fd.get(), name);
}

// What the layer itself has in a directory of its own.
Result<std::vector<ListedEntry>> Overlay::list_upper(const std::string& path) const {
  CACHESHIM_TRY(directory,
                sys::open_beneath(upper_.get(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  CACHESHIM_TRY(entries, sys::read_dir(directory.get()));
  std::erase_if(entries, [](const ListedEntry& entry) { return is_reserved_name(entry.name); });
  if (origins_.is_empty()) return entries;
  for (ListedEntry& entry : entries) {
    const auto origin = origins_.find(entry.ino);
    if (!origin) continue;
    entry.device = origin->device;
    entry.ino = origin->inode;
  }
  return entries;
}

Result<std::vector<ListedEntry>> Overlay::list(const std::string& path) const {
  auto listed = list_merged(path);
  if (listed) locks_.adjust(path, index_.hides_lowers(path) || index_.is_opaque(path), *listed);
  return listed;
}

Result<std::vector<ListedEntry>> Overlay::list_merged(const std::string& path) const {
  std::vector<ListedEntry> listed;
  const bool in_upper = upper_ && index_.has_directory(path);
  if (in_upper) {
    CACHESHIM_TRY(entries, list_upper(path));
    listed = std::move(entries);
  }
  if (index_.hides_lowers(path) || index_.is_opaque(path) || is_store_record(path)) {
    if (!in_upper) return Errno(ENOENT);
    return listed;
  }
  Result<std::vector<ListedEntry>> below = lowers_->list(path);
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
  const bool has_whiteouts = index_.has_whiteouts_in(path);
  for (ListedEntry& entry : below) {
    if (in_upper.contains(entry.name)) continue;
    if (has_whiteouts && index_.has_whiteout(join_path(path, entry.name))) continue;
    if (path.empty() && is_store_record(entry.name)) continue;
    listed.push_back(std::move(entry));
  }
}

void Overlay::shadow(const std::string& path, bool tree) const {
  if (observer_ != nullptr) observer_->shadows(path, tree);
}

// The base's listing of the directory is not the view's any more.
void Overlay::hide_lock(const std::string& path) {
  shadow(std::string(parent_path(path)), false);
  locks_.hide(path);
}

Status Overlay::load_layer() {
  CACHESHIM_CHECK(empty_work());
  CACHESHIM_CHECK(links_.load(work_->get()));
  if (!links_.is_empty()) shadow("", true);  // any name may be one of a copied file
  origins_.begin_load(work_->get());
  links_.for_each_copy([this](int directory, const std::string& name, ino_t inode) {
    origins_.found(directory, name, inode);
  });
  // No recursion, and one descriptor at a time: a job may make trees of any depth.
  std::vector<std::string> directories{""};
  while (!directories.empty()) {
    const std::string path = std::move(directories.back());
    directories.pop_back();
    CACHESHIM_TRY(directory,
                  sys::open_beneath(upper_.get(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    CACHESHIM_CHECK(load_directory(directory.get(), path, directories));
  }
  origins_.end_load();
  return {};
}

Status Overlay::empty_work() {
  CACHESHIM_TRY(entries, sys::list_dir(work_->get()));
  for (const sys::DirEntry& entry : entries) {
    if (entry.name != LinkIndex::kDirectory && entry.name != OriginLog::kFile) {
      (void)sys::remove_tree(work_->get(), entry.name);  // at worst it takes up space
    }
  }
  return {};
}

// Adds those that it holds to `further`.
Status Overlay::load_directory(int directory, const std::string& path,
                               std::vector<std::string>& further) {
  CACHESHIM_TRY(entries, sys::read_dir(directory));
  for (const sys::DirEntry& entry : entries) {
    origins_.found(directory, entry.name, entry.ino);
    if (entry.name == kOpaqueMarker) {
      shadow(path, true);
      index_.add_opaque(path);
    } else if (is_reserved_name(entry.name)) {
      shadow(path, true);  // more than the one name, which a long one's marker does not tell
      index_.add_whiteout_marker(path, entry.name);
    } else if (entry.type == DT_DIR || entry.type == DT_UNKNOWN) {
      const Result<UniqueFd> child =
          sys::open_beneath(directory, entry.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      const std::string child_path = join_path(path, entry.name);
      const bool is_file = !child && is_missing(child.error());  // DT_UNKNOWN and no directory
      shadow(child_path, is_file);
      if (is_file) continue;
      if (!child) return child.error();
      index_.add_directory(child_path);
      further.push_back(child_path);
    } else {
      shadow(join_path(path, entry.name), true);
    }
  }
  return {};
}

Status Overlay::check_name(const std::string& path) const {
  if (is_reserved_name(base_name(path))) return Errno(EPERM);
  if (is_store_record(path)) return Errno(EPERM);
  return {};
}

std::string Overlay::why_hidden(const std::string& path) const {
  if (!upper_) return "";
  for (std::string_view part = path; !part.empty(); part = parent_path(part)) {
    const std::string name(part);
    if (index_.has_whiteout(part)) return "the job has removed '" + name + "'";
    if (part != path && index_.is_opaque(part)) {
      return "the job has begun '" + name + "' itself, or made it anew: it sees its own alone";
    }
  }
  const auto own = sys::open_beneath(upper_.get(), path, O_PATH | O_NOFOLLOW);
  const auto st = own ? sys::stat_fd(own->get()) : own.error();
  return st && !S_ISDIR(st->st_mode) ? "the job has a file of its own there" : "";
}

}  // namespace cacheshim
