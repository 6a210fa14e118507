// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "store/overlay/overlay.h"
#include "store/sys/keep_times.h"
#include "store/sys/sys.h"

// Copy-up. A copy is completed in the work directory and then gets its name in the layer by one
// rename(2). So after a crash at any time the base's object is visible, and load_layer() removes
// everything else.
//
// A file's data may be copied before, without the overlay's mutex (prepare_copy_up()): the copy
// waits in StagedCopies under the state of the base file that it was made of. The change that needs
// it checks the base again under the mutex, and finds the copy only if the file is still in that
// state.
namespace cacheshim {

Result<std::string> Overlay::link_key(const std::string& path) const {
  CACHESHIM_TRY(object, lowers_->open(path, O_PATH));
  return LinkIndex::key_of(object.fd.get(), object.lower);
}

Status Overlay::ensure_directory(const std::string& path) {
  if (!upper_) return Errno(EBADF);
  if (index_.has_directory(path)) return {};
  CACHESHIM_TRY(found, find(path));
  if (S_ISLNK(found.st.st_mode)) return Errno(ELOOP);
  if (!S_ISDIR(found.st.st_mode)) return Errno(ENOTDIR);
  CACHESHIM_TRY(parent, open_upper_parent(path));
  return copy_up_directory(parent.get(), path, found.st);
}

Result<UniqueFd> Overlay::ensure_upper_dir(const std::string& path) {
  CACHESHIM_CHECK(ensure_directory(path));
  return sys::open_beneath(upper_.get(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<UniqueFd> Overlay::open_upper_parent(const std::string& path) {
  return ensure_upper_dir(std::string(parent_path(path)));
}

// Renames `staged`, a copy of `base` in the work directory, to its name in the layer.
Status Overlay::name_staged(const std::string& staged, int parent, const std::string& path,
                            const struct stat& base) {
  const auto copy = origins_.add(work_->get(), staged, base);
  Status named =
      sys::rename_at(work_->get(), staged, parent, std::string(base_name(path)), RENAME_NOREPLACE);
  if (!named && copy) (void)origins_.remove(*copy);
  return named;
}

Status Overlay::copy_up_directory(int parent, const std::string& path, const struct stat& st) {
  CACHESHIM_TRY(base, lowers_->open(path, O_PATH | O_DIRECTORY));
  shadow(path, false);
  const KeepTimes parent_times(parent);
  const std::string staged = staged_.new_name();
  CACHESHIM_CHECK(sys::make_dir_at(work_->get(), staged, 0700));
  const Status made = [&]() REQUIRES_SHARED(mutex_) -> Status {
    CACHESHIM_TRY(directory, sys::open_beneath(work_->get(), staged, O_RDONLY | O_DIRECTORY));
    CACHESHIM_CHECK(copy_attributes(base.fd.get(), directory.get(), st, options_.keep_owner));
    return name_staged(staged, parent, path, st);
  }();
  if (!made) {
    (void)sys::unlink_at(work_->get(), staged, AT_REMOVEDIR);  // otherwise the next daemon does
    return made;
  }
  index_.add_directory(path);
  return {};
}

Status Overlay::copy_up(const std::string& path, off_t keep_bytes) {
  CACHESHIM_TRY(found, locate(path));
  return copy_up_found(path, found, keep_bytes);
}

Status Overlay::copy_up_found(const std::string& path, const Located& found, off_t keep_bytes) {
  if (found.where == Where::kUpper || found.where == Where::kLock) return {};
  if (found.where == Where::kIndex) return link_up(path, found);
  if (S_ISREG(found.st.st_mode)) return copy_up_file(path, found.st, keep_bytes);
  if (!S_ISDIR(found.st.st_mode)) return copy_up_special(path, found.st);
  return ensure_directory(path);
}

// Copies an object that is neither a file nor a directory into the work directory.
Status Overlay::stage_special(int object, const struct stat& st, const std::string& staged) const {
  if (S_ISLNK(st.st_mode)) {
    CACHESHIM_TRY(target, sys::read_link_at(object, ""));
    CACHESHIM_CHECK(sys::make_symlink_at(target, work_->get(), staged));
  } else {
    CACHESHIM_CHECK(sys::make_node_at(work_->get(), staged, st.st_mode, st.st_rdev));
  }
  CACHESHIM_TRY(copy, sys::open_beneath(work_->get(), staged, O_PATH | O_NOFOLLOW));
  if (options_.keep_owner) CACHESHIM_CHECK(copy_owner(copy.get(), st));
  const timespec times[2] = {st.st_atim, st.st_mtim};
  return sys::set_times(copy.get(), times);
}

Status Overlay::stage_copy(int object, const struct stat& st, const std::string& staged) const {
  if (S_ISDIR(st.st_mode)) {
    CACHESHIM_CHECK(sys::make_dir_at(work_->get(), staged, 0700));
    CACHESHIM_TRY(directory, sys::open_beneath(work_->get(), staged, O_RDONLY | O_DIRECTORY));
    return copy_attributes(object, directory.get(), st, options_.keep_owner);
  }
  if (!S_ISREG(st.st_mode)) return stage_special(object, st, staged);
  CACHESHIM_TRY(source, sys::reopen(object, O_RDONLY));
  CACHESHIM_TRY(target, sys::open_beneath(work_->get(), staged, O_RDWR | O_CREAT | O_EXCL, 0600));
  return copy_file(source.get(), target.get(), {.keep_owner = options_.keep_owner});
}

Result<UniqueFd> Overlay::copy_nameless(int object) {
  CACHESHIM_TRY(st, sys::stat_fd(object));
  const std::string staged = staged_.new_name();
  Result<UniqueFd> copy = [&]() REQUIRES_SHARED(mutex_) -> Result<UniqueFd> {
    CACHESHIM_CHECK(stage_copy(object, st, staged));
    return sys::open_beneath(work_->get(), staged, O_PATH | O_NOFOLLOW);
  }();
  // The next daemon removes a leftover.
  (void)sys::unlink_at(work_->get(), staged, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
  return copy;
}

Status Overlay::copy_up_special(const std::string& path, const struct stat& st) {
  shadow(path, true);
  CACHESHIM_TRY(parent, open_upper_parent(path));
  CACHESHIM_TRY(object, lowers_->open(path, O_PATH));
  const KeepTimes parent_times(parent.get());
  const std::string staged = staged_.new_name();
  const Status made = [&]() REQUIRES_SHARED(mutex_) -> Status {
    CACHESHIM_CHECK(stage_special(object.fd.get(), st, staged));
    return name_staged(staged, parent.get(), path, st);
  }();
  if (!made) (void)sys::unlink_at(work_->get(), staged);  // otherwise the next daemon does
  return made;
}

// Copies `path`, a merged directory, with its contents into the layer.
Status Overlay::copy_up_tree(const std::string& path) {
  constexpr std::ptrdiff_t kMostDepth = 4096;  // a path of 4,095 bytes cannot be deeper
  if (std::count(path.begin(), path.end(), '/') > kMostDepth) return Errno(ELOOP);
  // If the base has nothing there, the layer's directory stays unchanged.
  if (index_.has_directory(path) && find_in_base(path).failed_with(ENOENT))
    return mark_opaque(path);
  CACHESHIM_TRY(entries, list(path));
  CACHESHIM_TRY(directory, ensure_upper_dir(path));
  const KeepTimes times(directory.get());
  for (const ListedEntry& entry : entries) {
    const std::string child = join_path(path, entry.name);
    CACHESHIM_TRY(found, find(child));
    CACHESHIM_CHECK(S_ISDIR(found.st.st_mode) ? copy_up_tree(child) : copy_up(child));
  }
  return mark_opaque(path);
}

Status Overlay::copy_up_file(const std::string& path, const struct stat& st, off_t keep_bytes) {
  shadow(path, true);
  CACHESHIM_TRY(parent, open_upper_parent(path));
  if (const auto ready = staged_.find_ready(st, keep_bytes)) {
    return name_copy(path, ready, st, parent.get());
  }
  CACHESHIM_TRY(claim, begin_copy(path, keep_bytes));
  CACHESHIM_CHECK(staged_.complete(claim));
  CACHESHIM_TRY(base, find_in_base(path));
  return name_copy(path, claim.copy, base, parent.get());
}

// Adds a further name of a file that already has a copy.
Status Overlay::link_up(const std::string& path, const Located& found) {
  shadow(path, true);
  CACHESHIM_TRY(parent, open_upper_parent(path));
  const KeepTimes parent_times(parent.get());
  CACHESHIM_CHECK(links_.link_copy(found.key, parent.get(), std::string(base_name(path))));
  CACHESHIM_CHECK(links_.take_name(found.key, found.st.st_nlink));
  announce_copy(path, parent.get());
  return {};
}

Result<PreparedCopies> Overlay::prepare_copy_up(const std::string& path, off_t keep_bytes) {
  PreparedCopies copies;
  CACHESHIM_CHECK(prepare_below(path, keep_bytes, copies));
  return copies;
}

// If an object cannot be found, the change itself will meet the error.
Status Overlay::prepare_below(const std::string& path, off_t keep_bytes, PreparedCopies& copies) {
  std::vector<ListedEntry> children;
  std::optional<StagedCopies::Claim> claim;
  {
    const ReaderLock lock(mutex_);
    const auto found = locate(path);
    if (!work_ || !found) return {};
    if (S_ISDIR(found->st.st_mode)) {
      if (!find_in_base(path)) return {};
      auto listed = list(path);
      if (!listed) return {};
      children = *std::move(listed);
    } else if (found->where == Where::kLowers && S_ISREG(found->st.st_mode) &&
               std::min(found->st.st_size, keep_bytes) > 0) {
      auto begun = begin_copy(path, keep_bytes);
      if (!begun) return {};
      copies.push_back(begun->copy);
      claim = *std::move(begun);
    }
  }
  if (claim) return staged_.complete(*claim);
  for (const ListedEntry& child : children) {
    CACHESHIM_CHECK(prepare_below(join_path(path, child.name), keep_bytes, copies));
  }
  return {};
}

Result<StagedCopies::Claim> Overlay::begin_copy(const std::string& path, off_t keep_bytes) {
  CACHESHIM_TRY(source, lowers_->open(path, O_RDONLY | O_NONBLOCK));
  return staged_.begin(std::move(source.fd), keep_bytes);
}

// Gives a copy the name of the base file that it was made of, `base`.
Status Overlay::name_copy(const std::string& path, const StagedCopies::Ticket& copy,
                          const struct stat& base, int parent) {
  std::string key;
  if (base.st_nlink > 1) {
    CACHESHIM_TRY(found_key, link_key(path));
    key = std::move(found_key);
    shadow("", true);  // any name may belong to this file
    CACHESHIM_CHECK(links_.add_copy(key, base.st_nlink, copy->work(), copy->name()));
  }
  CACHESHIM_CHECK(staged_.at_step(CopyUpStep::kIndexed));
  const KeepTimes parent_times(parent);
  CACHESHIM_CHECK(name_staged(copy->name(), parent, path, base));
  staged_.set_taken(copy);
  CACHESHIM_CHECK(staged_.at_step(CopyUpStep::kNamed));
  if (!key.empty()) CACHESHIM_CHECK(links_.take_name(key, base.st_nlink));
  counters_.copy_ups.fetch_add(1, std::memory_order_relaxed);
  announce_copy(path, parent);
  return {};
}

void Overlay::announce_copy(const std::string& path, int parent) {
  if (observer_ == nullptr) return;
  const auto upper = sys::stat_at(parent, std::string(base_name(path)));
  if (upper) observer_->copied_up(path, *upper);
}

Result<UniqueFd> Overlay::open_writable(const std::string& path, int flags) {
  if (is_shared_lock(path)) return locks_.open(path, flags);
  CACHESHIM_CHECK(copy_up(path, (flags & O_TRUNC) != 0 ? 0 : kWholeFile));
  return sys::open_beneath(upper_.get(), path, flags | O_NOFOLLOW | O_NONBLOCK);
}

}  // namespace cacheshim
