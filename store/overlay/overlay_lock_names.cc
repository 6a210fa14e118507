// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "store/overlay/overlay.h"
#include "store/sys/sys.h"

// Renames and links in which one name, or both, is a lock file's. Lock files are in the base and
// all other files in the layer, so the object moves between the two.
namespace cacheshim {
namespace {

// For names of one object that are on two file systems, or of class `shared`.
Status as_link_error(Status linked) { return linked.failed_with(EXDEV) ? Errno(EPERM) : linked; }

}  // namespace

// Its directory is one of the view, which may not be in the base yet.
Status Overlay::check_lock_directory(const std::string& path) const {
  CACHESHIM_TRY(directory, find(std::string(parent_path(path))));
  return S_ISDIR(directory.st.st_mode) ? Status() : Errno(ENOTDIR);
}

// If this returns EXDEV, mv(1) and similar programs copy.
Status Overlay::rename_common(const std::string& from, const Located& source, const std::string& to,
                              const Result<Located>& target, unsigned flags, UniqueFd* new_lock) {
  CACHESHIM_CHECK(check_rename_target(source, to, target, flags));
  if (from == to || (target && are_one_file(source.st, target->st))) return {};
  const bool leaves_base = source.where == Where::kLock;
  const bool enters_base = becomes_common(source, to);
  if (enters_base && target && target->where != Where::kLock) return Errno(EXDEV);
  if (enters_base) CACHESHIM_CHECK(check_lock_directory(to));
  if (leaves_base && enters_base) return locks_.rename(from, to, flags);
  if (flags == RENAME_EXCHANGE) return Errno(EXDEV);
  if (enters_base) return rename_into_base(from, source, to, flags, new_lock);
  return leaves_base ? rename_out_of_base(from, to, target) : Errno(EXDEV);
}

Status Overlay::rename_into_base(const std::string& from, const Located& source,
                                 const std::string& to, unsigned flags, UniqueFd* new_lock) {
  CACHESHIM_CHECK(copy_up_found(from, source, kWholeFile));
  shadow(from, true);
  const bool base_has_source = static_cast<bool>(find_in_base(from));
  CACHESHIM_TRY(parent, open_upper_parent(from));
  CACHESHIM_CHECK(remove_last_name(from, [&]() -> Status {
    CACHESHIM_TRY(lock, locks_.rename_in(parent.get(), std::string(base_name(from)), to, flags));
    if (new_lock != nullptr) *new_lock = std::move(lock);
    return {};
  }));
  return base_has_source ? add_whiteout(from) : Status();
}

Status Overlay::rename_out_of_base(const std::string& from, const std::string& to,
                                   const Result<Located>& target) {
  shadow(to, true);
  CACHESHIM_CHECK(ensure_directory(std::string(parent_path(to))));
  if (target) CACHESHIM_CHECK(hide_in_base(to, *target));
  begin_entry(to);
  CACHESHIM_TRY(parent, open_upper_parent(to));
  CACHESHIM_CHECK(remove_last_name(
      to, [&] { return locks_.rename_out(from, parent.get(), std::string(base_name(to))); }));
  if (target) forget_link_if_gone(target->st);
  remove_whiteout(to);
  return {};
}

Status Overlay::link_into_base(int object, const std::string& new_path) {
  CACHESHIM_CHECK(check_name(new_path));
  CACHESHIM_CHECK(check_lock_directory(new_path));
  return as_link_error(locks_.link_in(object, new_path));
}

Status Overlay::link_common(const std::string& path, const std::string& new_path) {
  if (locate(new_path)) return Errno(EEXIST);
  if (!is_shared_lock(path)) {
    CACHESHIM_CHECK(copy_up(path));
    CACHESHIM_TRY(object, sys::open_beneath(upper_.get(), path, O_PATH | O_NOFOLLOW));
    return link_into_base(object.get(), new_path);
  }
  if (locks_.is_shared_name(new_path)) {
    CACHESHIM_CHECK(check_lock_directory(new_path));
    return as_link_error(locks_.link(path, new_path));
  }
  CACHESHIM_CHECK(prepare_new_name(new_path));
  CACHESHIM_TRY(parent, open_upper_parent(new_path));
  shadow(new_path, true);
  begin_entry(new_path);
  CACHESHIM_CHECK(
      as_link_error(locks_.link_out(path, parent.get(), std::string(base_name(new_path)))));
  remove_whiteout(new_path);
  return {};
}

}  // namespace cacheshim
