// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/copy_up.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "store/overlay/common_names.h"
#include "store/overlay/layer_names.h"
#include "store/sys/copy_file.h"
#include "store/sys/keep_times.h"
#include "store/sys/rename_flags.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Renames `staged`, a copy of `base` in the work directory, to its name in the layer.
Status name_staged(Overlay& overlay, const std::string& staged, int parent, const std::string& path,
                   const struct stat& base) REQUIRES_SHARED(overlay.mutex()) {
  const auto copy = overlay.state.origins.add(overlay.state.work->get(), staged, base);
  Status named = sys::rename_new_at(overlay.state.work->get(), staged, parent,
                                    std::string(base_name(path)));
  if (!named && copy) (void)overlay.state.origins.remove(*copy);
  return named;
}

void announce_copy(const Overlay& overlay, const std::string& path, int parent) {
  if (overlay.state.observer == nullptr) return;
  const auto upper = sys::stat_at(parent, std::string(base_name(path)));
  if (upper) overlay.state.observer->copied_up(path, *upper);
}

// Keeps the atime and mtime of the layer's directory `path` while a copy gets its name there. The destructor restores
// these times and notifies the observer.
class KeepDirectory {
 public:
  // `directory` is an open descriptor of `path`. The arguments must outlive this object.
  KeepDirectory(const Overlay& overlay, std::string_view path, int directory)
      : overlay_(overlay), path_(path), directory_(directory), times_(std::in_place, directory) {}
  ~KeepDirectory() {
    const Result<struct stat> before = times_->before();
    times_.reset();
    if (overlay_.state.observer == nullptr || !before) return;
    const auto after = sys::stat_fd(directory_);
    if (after) overlay_.state.observer->copied_into(std::string(path_), *before, *after);
  }
  KeepDirectory(const KeepDirectory&) = delete;
  KeepDirectory& operator=(const KeepDirectory&) = delete;

 private:
  const Overlay& overlay_;
  const std::string_view path_;
  const int directory_;
  std::optional<KeepTimes> times_;
};

Status copy_up_directory(Overlay& overlay, int parent, const std::string& path,
                         const struct stat& st) REQUIRES_SHARED(overlay.mutex()) {
  CACHESHIM_CHECK(overlay.state.grow(0, 1));
  CACHESHIM_TRY(base, overlay.state.lowers->open(path, O_PATH | O_DIRECTORY));
  overlay.state.shadow(path, false);
  const KeepDirectory kept(overlay, parent_path(path), parent);
  const std::string staged = overlay.state.staged.new_name();
  CACHESHIM_CHECK(sys::make_dir_at(overlay.state.work->get(), staged, 0700));
  const Status made = [&]() REQUIRES_SHARED(overlay.state.mutex) -> Status {
    CACHESHIM_TRY(directory,
                  sys::open_beneath(overlay.state.work->get(), staged, O_RDONLY | O_DIRECTORY));
    CACHESHIM_CHECK(
        copy_attributes(base.fd.get(), directory.get(), st, overlay.state.options.keep_owner));
    return name_staged(overlay, staged, parent, path, st);
  }();
  if (!made) {
    (void)sys::unlink_at(overlay.state.work->get(), staged,
                         AT_REMOVEDIR);  // if this fails, the next daemon removes it
    return made;
  }
  overlay.state.index.add_directory(path);
  announce_copy(overlay, path, parent);
  return {};
}

// Copies an object that is neither a regular file nor a directory into the work directory.
Status stage_special(const Overlay& overlay, int object, const struct stat& st,
                     const std::string& staged) REQUIRES_SHARED(overlay.mutex()) {
  if (S_ISLNK(st.st_mode)) {
    CACHESHIM_TRY(target, sys::read_link_at(object, ""));
    CACHESHIM_CHECK(sys::make_symlink_at(target, overlay.state.work->get(), staged));
  } else {
    CACHESHIM_CHECK(sys::make_node_at(overlay.state.work->get(), staged, st.st_mode, st.st_rdev));
  }
  CACHESHIM_TRY(copy, sys::open_beneath(overlay.state.work->get(), staged, O_PATH | O_NOFOLLOW));
  if (overlay.state.options.keep_owner) CACHESHIM_CHECK(copy_owner(copy.get(), st));
  const timespec times[2] = {st.st_atim, st.st_mtim};
  return sys::set_times(copy.get(), times);
}

Status stage_copy(const Overlay& overlay, int object, const struct stat& st,
                  const std::string& staged) REQUIRES_SHARED(overlay.mutex()) {
  if (S_ISDIR(st.st_mode)) {
    CACHESHIM_CHECK(sys::make_dir_at(overlay.state.work->get(), staged, 0700));
    CACHESHIM_TRY(directory,
                  sys::open_beneath(overlay.state.work->get(), staged, O_RDONLY | O_DIRECTORY));
    return copy_attributes(object, directory.get(), st, overlay.state.options.keep_owner);
  }
  if (!S_ISREG(st.st_mode)) return stage_special(overlay, object, st, staged);
  CACHESHIM_TRY(source, sys::reopen(object, O_RDONLY));
  CACHESHIM_TRY(target, sys::open_beneath(overlay.state.work->get(), staged,
                                          O_RDWR | O_CREAT | O_EXCL, 0600));
  return copy_file(source.get(), target.get(), {.keep_owner = overlay.state.options.keep_owner});
}

Status copy_up_special(Overlay& overlay, const std::string& path, const struct stat& st)
    REQUIRES_SHARED(overlay.mutex()) {
  CACHESHIM_CHECK(overlay.state.grow(0, 1));
  overlay.state.shadow(path, true);
  CACHESHIM_TRY(parent, open_upper_parent(overlay, path));
  CACHESHIM_TRY(object, overlay.state.lowers->open(path, O_PATH));
  const KeepDirectory kept(overlay, parent_path(path), parent.get());
  const std::string staged = overlay.state.staged.new_name();
  const Status made = [&]() REQUIRES_SHARED(overlay.state.mutex) -> Status {
    CACHESHIM_CHECK(stage_special(overlay, object.fd.get(), st, staged));
    return name_staged(overlay, staged, parent.get(), path, st);
  }();
  if (!made)
    // If this fails, the next daemon removes it.
    (void)sys::unlink_at(overlay.state.work->get(), staged);
  else
    announce_copy(overlay, path, parent.get());
  return made;
}

Result<StagedCopies::Claim> begin_copy(Overlay& overlay, const std::string& path, off_t keep_bytes,
                                       StagedCopies::Keep keep) REQUIRES_SHARED(overlay.mutex()) {
  CACHESHIM_TRY(source, overlay.state.lowers->open(path, O_RDONLY | O_NONBLOCK));
  return overlay.state.staged.begin(std::move(source.fd), keep_bytes, keep);
}

// Renames a copy of `base` from the work directory to `path` in the layer. Returns the result of
// StagedCopies::set_taken().
Result<UniqueFd> name_copy(Overlay& overlay, const std::string& path,
                           const StagedCopies::Ticket& copy, const struct stat& base, int parent)
    REQUIRES_SHARED(overlay.mutex()) {
  std::string key;
  if (base.st_nlink > 1) {
    CACHESHIM_TRY(found_key, link_key(overlay, path));
    key = std::move(found_key);
    overlay.state.shadow("", true);  // any name may be a link to this file
    CACHESHIM_CHECK(overlay.state.links.add_copy(key, base.st_nlink, copy->work(), copy->name()));
  }
  CACHESHIM_CHECK(overlay.state.staged.at_step(CopyUpStep::kIndexed));
  const KeepDirectory kept(overlay, parent_path(path), parent);
  CACHESHIM_CHECK(name_staged(overlay, copy->name(), parent, path, base));
  UniqueFd file = overlay.state.staged.set_taken(copy);
  CACHESHIM_CHECK(overlay.state.staged.at_step(CopyUpStep::kNamed));
  if (!key.empty()) CACHESHIM_CHECK(overlay.state.links.take_name(key, base.st_nlink));
  overlay.state.counters.copy_ups.fetch_add(1, std::memory_order_relaxed);
  announce_copy(overlay, path, parent);
  return file;
}

// Returns the result of StagedCopies::set_taken(): a descriptor of the copy, which may be empty.
Result<UniqueFd> copy_up_file(Overlay& overlay, const std::string& path, const struct stat& st,
                              off_t keep_bytes) REQUIRES_SHARED(overlay.mutex()) {
  overlay.state.shadow(path, true);
  CACHESHIM_TRY(parent, open_upper_parent(overlay, path));
  if (const auto ready = overlay.state.staged.find_ready(st, keep_bytes)) {
    return name_copy(overlay, path, ready, st, parent.get());
  }
  CACHESHIM_TRY(claim, begin_copy(overlay, path, keep_bytes, StagedCopies::Keep::kClosed));
  CACHESHIM_CHECK(overlay.state.staged.complete(claim));
  CACHESHIM_TRY(base, overlay.find_in_base(path));
  return name_copy(overlay, path, claim.copy, base, parent.get());
}

// Copies up another hard link of a file that has already been copied up: links the existing copy to `path`.
Status link_up(Overlay& overlay, const std::string& path, const Located& found)
    REQUIRES_SHARED(overlay.mutex()) {
  CACHESHIM_CHECK(overlay.state.grow(0, 1));
  overlay.state.shadow(path, true);
  CACHESHIM_TRY(parent, open_upper_parent(overlay, path));
  const KeepDirectory kept(overlay, parent_path(path), parent.get());
  CACHESHIM_CHECK(
      overlay.state.links.link_copy(found.key, parent.get(), std::string(base_name(path))));
  CACHESHIM_CHECK(overlay.state.links.take_name(found.key, found.st.st_nlink));
  announce_copy(overlay, path, parent.get());
  return {};
}

// As prepare_copy_up(), but for one object. Adds the paths of the objects in a directory to `further`. Ignores objects
// that cannot be found: the change itself will return the error.
Status prepare_one(Overlay& overlay, const std::string& path, off_t keep_bytes,
                   StagedCopies::Keep keep, PreparedCopies& copies,
                   std::vector<std::string>& further) EXCLUDES(overlay.mutex()) {
  std::optional<StagedCopies::Claim> claim;
  {
    const ReaderLock lock(overlay.state.mutex);
    const auto found = overlay.locate(path);
    if (!overlay.state.work || !found) return {};
    if (S_ISDIR(found->st.st_mode)) {
      if (!overlay.find_in_base(path)) return {};
      auto listed = overlay.list(path);
      if (!listed) return {};
      for (const ListedEntry& child : *listed) further.push_back(join_path(path, child.name));
    } else if (found->where == Where::kLowers && S_ISREG(found->st.st_mode) &&
               std::min(found->st.st_size, keep_bytes) > 0) {
      auto begun = begin_copy(overlay, path, keep_bytes, keep);
      if (!begun) return {};
      copies.push_back(begun->copy);
      claim = *std::move(begun);
    }
  }
  return claim ? overlay.state.staged.complete(*claim) : Status();
}

// Marks the directory opaque. Call when the layer has everything that the view shows in it. From then on the
// directory's links can be counted (Overlay::count_directory_links()), so its attributes change.
Status complete_tree(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex()) {
  CACHESHIM_CHECK(mark_opaque(overlay, path));
  CACHESHIM_TRY(parent, open_upper_parent(overlay, path));
  announce_copy(overlay, path, parent.get());
  return {};
}

}  // namespace

Result<std::string> link_key(const Overlay& overlay, const std::string& path) {
  CACHESHIM_TRY(object, overlay.state.lowers->open(path, O_PATH));
  return LinkIndex::key_of(object.fd.get(), object.lower);
}

Status ensure_directory(Overlay& overlay, const std::string& path) {
  if (!overlay.state.upper) return Errno(EBADF);
  if (overlay.state.index.has_directory(path)) return {};
  CACHESHIM_TRY(found, overlay.find(path));
  if (S_ISLNK(found.st.st_mode)) return Errno(ELOOP);
  if (!S_ISDIR(found.st.st_mode)) return Errno(ENOTDIR);
  CACHESHIM_TRY(parent, open_upper_parent(overlay, path));
  return copy_up_directory(overlay, parent.get(), path, found.st);
}

Result<UniqueFd> ensure_upper_dir(Overlay& overlay, const std::string& path) {
  CACHESHIM_CHECK(ensure_directory(overlay, path));
  return sys::open_beneath(overlay.state.upper.get(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<UniqueFd> open_upper_parent(Overlay& overlay, const std::string& path) {
  return ensure_upper_dir(overlay, std::string(parent_path(path)));
}

Status copy_up(Overlay& overlay, const std::string& path, off_t keep_bytes) {
  CACHESHIM_TRY(found, overlay.locate(path));
  return copy_up_found(overlay, path, found, keep_bytes);
}

Status copy_up_found(Overlay& overlay, const std::string& path, const Located& found,
                     off_t keep_bytes) {
  if (found.where == Where::kUpper || found.where == Where::kLock) return {};
  if (found.where == Where::kIndex) return link_up(overlay, path, found);
  if (S_ISREG(found.st.st_mode)) {
    const auto copy = copy_up_file(overlay, path, found.st, keep_bytes);
    return copy ? Status() : copy.error();
  }
  if (!S_ISDIR(found.st.st_mode)) return copy_up_special(overlay, path, found.st);
  return ensure_directory(overlay, path);
}

Result<UniqueFd> copy_nameless(Overlay& overlay, int object) {
  CACHESHIM_TRY(st, sys::stat_fd(object));
  CACHESHIM_CHECK(overlay.state.grow(S_ISREG(st.st_mode) ? size_of_copy(st) : 0, 1));
  const std::string staged = overlay.state.staged.new_name();
  Result<UniqueFd> copy = [&]() REQUIRES_SHARED(overlay.state.mutex) -> Result<UniqueFd> {
    CACHESHIM_CHECK(stage_copy(overlay, object, st, staged));
    return sys::open_beneath(overlay.state.work->get(), staged, O_PATH | O_NOFOLLOW);
  }();
  // If this fails, the next daemon removes the file.
  (void)sys::unlink_at(overlay.state.work->get(), staged, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
  return copy;
}

Status copy_up_tree(Overlay& overlay, const std::string& path) {
  constexpr std::ptrdiff_t kMostDepth = 4096;  // a path of kMostPathBytes cannot be deeper
  if (std::count(path.begin(), path.end(), '/') > kMostDepth) return Errno(ELOOP);
  // If the base has nothing there, nothing needs to be copied.
  if (overlay.state.index.has_directory(path) && overlay.find_in_base(path).failed_with(ENOENT))
    return complete_tree(overlay, path);
  CACHESHIM_TRY(entries, overlay.list(path));
  CACHESHIM_CHECK(ensure_directory(overlay, path));
  for (const ListedEntry& entry : entries) {
    const std::string child = join_path(path, entry.name);
    CACHESHIM_TRY(found, overlay.find(child));
    CACHESHIM_CHECK(S_ISDIR(found.st.st_mode) ? copy_up_tree(overlay, child)
                                              : copy_up(overlay, child));
  }
  return complete_tree(overlay, path);
}

Result<PreparedCopies> prepare_copy_up(Overlay& overlay, const std::string& path,
                                       off_t keep_bytes) {
  PreparedCopies copies;
  std::vector<std::string> paths{path};
  auto keep = StagedCopies::Keep::kOpen;
  while (!paths.empty()) {  // no recursion: the base may have trees of any depth
    const std::string next = std::move(paths.back());
    paths.pop_back();
    CACHESHIM_CHECK(prepare_one(overlay, next, keep_bytes, keep, copies, paths));
    keep = StagedCopies::Keep::kClosed;  // all other objects are in the directory `path`, and may be many
  }
  return copies;
}

Result<UniqueFd> open_writable(Overlay& overlay, const std::string& path, int flags) {
  CACHESHIM_TRY(found, overlay.locate(path));
  return open_writable_found(overlay, path, found, flags);
}

Result<UniqueFd> open_writable_found(Overlay& overlay, const std::string& path,
                                     const Located& found, int flags) {
  if (found.where == Where::kLock) return overlay.state.locks.files.open(path, flags);
  const off_t keep_bytes = (flags & O_TRUNC) != 0 ? 0 : kWholeFile;
  if (found.where == Where::kLowers && S_ISREG(found.st.st_mode)) {
    CACHESHIM_TRY(copy, copy_up_file(overlay, path, found.st, keep_bytes));
    if (copy && flags == O_RDWR) return copy;  // it is open for reading and writing
  } else {
    CACHESHIM_CHECK(copy_up_found(overlay, path, found, keep_bytes));
  }
  return sys::open_beneath(overlay.state.upper.get(), path, flags | O_NOFOLLOW | O_NONBLOCK);
}

}  // namespace cacheshim
