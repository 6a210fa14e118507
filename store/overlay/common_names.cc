// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/common_names.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "store/overlay/copy_up.h"
#include "store/overlay/layer_names.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Converts EXDEV, the error for names on two file systems or of class `shared`, to EPERM, with which link(2)
// reports that a file system has no hard links.
Status as_link_error(Status linked) { return linked.failed_with(EXDEV) ? Errno(EPERM) : linked; }

// Checks that the view has the lock file's directory. The base need not have the directory yet.
Status check_lock_directory(const Overlay& overlay, const std::string& path)
    REQUIRES_SHARED(overlay.mutex()) {
  CACHESHIM_TRY(directory, overlay.find(std::string(parent_path(path))));
  return S_ISDIR(directory.st.st_mode) ? Status() : Errno(ENOTDIR);
}

Status rename_into_base(Overlay& overlay, const std::string& from, const Located& source,
                        const std::string& to, unsigned flags, UniqueFd* new_lock)
    REQUIRES_SHARED(overlay.mutex()) {
  CACHESHIM_CHECK(copy_up_found(overlay, from, source, kWholeFile));
  overlay.state.shadow(from, true);
  const bool base_has_source = static_cast<bool>(overlay.find_in_base(from));
  CACHESHIM_TRY(parent, open_upper_parent(overlay, from));
  CACHESHIM_CHECK(remove_last_name(overlay, from, [&]() -> Status {
    CACHESHIM_TRY(lock, overlay.state.locks.renames.rename_in(
                            parent.get(), std::string(base_name(from)), to, flags));
    if (new_lock != nullptr) *new_lock = std::move(lock);
    return {};
  }));
  return base_has_source ? add_whiteout(overlay, from) : Status();
}

Status rename_out_of_base(Overlay& overlay, const std::string& from, const std::string& to,
                          const Result<Located>& target) REQUIRES_SHARED(overlay.mutex()) {
  overlay.state.shadow(to, true);
  CACHESHIM_CHECK(ensure_directory(overlay, std::string(parent_path(to))));
  if (target) CACHESHIM_CHECK(hide_in_base(overlay, to, *target));
  begin_entry(overlay, to);
  CACHESHIM_TRY(parent, open_upper_parent(overlay, to));
  CACHESHIM_CHECK(remove_last_name(overlay, to, [&] {
    return overlay.state.locks.renames.rename_out(from, parent.get(), std::string(base_name(to)));
  }));
  if (target) forget_link_if_gone(overlay, target->st);
  remove_whiteout(overlay, to);
  return {};
}

}  // namespace

bool is_shared_lock(const Overlay& overlay, const std::string& path) {
  return overlay.state.locks.files.is_shared_name(path) && overlay.state.locks.files.find(path);
}

Result<LockFiles::Made> create_lock(Overlay& overlay, const std::string& path, int flags) {
  CACHESHIM_CHECK(overlay.state.check_name(path));
  const Result<Located> there = overlay.locate(path);
  if (there && (there->where != Where::kLock || (flags & O_EXCL) != 0)) return Errno(EEXIST);
  CACHESHIM_CHECK(check_lock_directory(overlay, path));
  return overlay.state.locks.files.create(path, flags);
}

Result<UniqueFd> open_named_lock(const Overlay& overlay, const std::string& path, bool makes) {
  if (!overlay.state.locks.named.may_become_lock(path)) return Errno(ENOENT);
  if (is_too_deep_for_base(path)) return Errno(ENAMETOOLONG);
  CACHESHIM_TRY(located, overlay.locate(path));
  if (!S_ISREG(located.st.st_mode)) return Errno(EISDIR);
  if (located.st.st_size > kMostLockBytes) return Errno(EFBIG);
  auto known = overlay.state.locks.named.open(path);
  if (!makes || !known.failed_with(ENOENT)) return known;
  if (row_of(overlay.state.entries.class_of(path)).locks_by_existence)
    return overlay.state.locks.named.ensure(path);
  constexpr mode_t kOpen = S_IROTH | S_IXOTH;
  for (std::string directory(parent_path(path)); !directory.empty();
       directory = parent_path(directory)) {
    if (overlay.state.lowers->find(directory)) break;
    CACHESHIM_TRY(above, overlay.locate(directory));
    if ((above.st.st_mode & kOpen) != kOpen) return Errno(EACCES);
  }
  return overlay.state.locks.named.ensure(path);
}

// Also shadows the directory, because the view's listing of it then differs from the base's.
void hide_lock(Overlay& overlay, const std::string& path) {
  overlay.state.shadow(std::string(parent_path(path)), false);
  overlay.state.locks.hidden.hide(path);
}

Status rename_common(Overlay& overlay, const std::string& from, const Located& source,
                     const std::string& to, const Result<Located>& target, unsigned flags,
                     UniqueFd* new_lock) {
  CACHESHIM_CHECK(check_rename_target(overlay, source, to, target, flags));
  if (from == to || (target && are_one_file(source.st, target->st))) return {};
  const bool leaves_base = source.where == Where::kLock;
  const bool enters_base = becomes_common(overlay, source, to);
  if (enters_base && target && target->where != Where::kLock) return Errno(EXDEV);
  if (enters_base) CACHESHIM_CHECK(check_lock_directory(overlay, to));
  if (leaves_base && enters_base) return overlay.state.locks.renames.rename(from, to, flags);
  if (flags == RENAME_EXCHANGE) return Errno(EXDEV);
  if (enters_base) return rename_into_base(overlay, from, source, to, flags, new_lock);
  return leaves_base ? rename_out_of_base(overlay, from, to, target) : Errno(EXDEV);
}

Status link_into_base(Overlay& overlay, int object, const std::string& new_path) {
  CACHESHIM_CHECK(overlay.state.check_name(new_path));
  CACHESHIM_CHECK(check_lock_directory(overlay, new_path));
  return as_link_error(overlay.state.locks.renames.link_in(object, new_path));
}

Status link_common(Overlay& overlay, const std::string& path, const std::string& new_path) {
  if (overlay.locate(new_path)) return Errno(EEXIST);
  if (!is_shared_lock(overlay, path)) {
    CACHESHIM_CHECK(copy_up(overlay, path));
    CACHESHIM_TRY(object, sys::open_beneath(overlay.state.upper.get(), path, O_PATH | O_NOFOLLOW));
    return link_into_base(overlay, object.get(), new_path);
  }
  if (overlay.state.locks.files.is_shared_name(new_path)) {
    CACHESHIM_CHECK(check_lock_directory(overlay, new_path));
    return as_link_error(overlay.state.locks.renames.link(path, new_path));
  }
  CACHESHIM_CHECK(prepare_new_name(overlay, new_path));
  CACHESHIM_TRY(parent, open_upper_parent(overlay, new_path));
  overlay.state.shadow(new_path, true);
  begin_entry(overlay, new_path);
  CACHESHIM_CHECK(as_link_error(
      overlay.state.locks.renames.link_out(path, parent.get(), std::string(base_name(new_path)))));
  remove_whiteout(overlay, new_path);
  return {};
}

}  // namespace cacheshim
