// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include "store/overlay/overlay.h"
#include "store/sys/sys.h"

// Renames. The object is first copied up, a directory with everything that the merged view has
// below it, and then moved by one rename(2) within the layer. A directory that moves becomes
// opaque: it is not the directory that the base may have, or get, under its new name. No EXDEV.
namespace cacheshim {

Status Overlay::check_rename_target(const Located& source, const std::string& to,
                                    const Result<Located>& target, unsigned flags) const {
  CACHESHIM_CHECK(check_name(to));
  if (!target) {
    if (!target.failed_with(ENOENT)) return target.error();
    if (flags == RENAME_EXCHANGE) return Errno(ENOENT);
    return {};
  }
  if (flags == RENAME_NOREPLACE) return Errno(EEXIST);
  if (flags == RENAME_EXCHANGE) return {};
  const bool onto_dir = S_ISDIR(target->st.st_mode);
  if (onto_dir && !S_ISDIR(source.st.st_mode)) return Errno(EISDIR);
  if (!onto_dir && S_ISDIR(source.st.st_mode)) return Errno(ENOTDIR);
  if (!onto_dir) return {};
  CACHESHIM_TRY(entries, list(to));
  if (!entries.empty()) return Errno(ENOTEMPTY);
  return {};
}

// rename(2): nothing happens if both are names of one file.
bool Overlay::are_one_file(const struct stat& one, const struct stat& other) {
  return S_ISREG(one.st_mode) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool Overlay::becomes_common(const Located& source, const std::string& to) const {
  return S_ISREG(source.st.st_mode) && locks_.is_shared_name(to);
}

Status Overlay::rename(const std::string& from, const std::string& to, unsigned flags, Hold hold,
                       UniqueFd* new_lock) {
  if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE) return Errno(EINVAL);
  CACHESHIM_TRY(source, locate(from));
  const Result<Located> target = locate(to);
  const bool is_common = source.where == Where::kLock || becomes_common(source, to) ||
                         (target && target->where == Where::kLock);
  if (is_common && hold == Hold::kShared) return Errno(kNeedsExclusive);
  if (is_common) return rename_common(from, source, to, target, flags, new_lock);
  const bool can_share = flags != RENAME_EXCHANGE && is_own_file(from, source) &&
                         (target ? is_own_file(to, *target) : makes_shared(to));
  if (hold == Hold::kShared && !can_share) return Errno(kNeedsExclusive);
  CACHESHIM_CHECK(check_rename_target(source, to, target, flags));
  if (from == to || (target && are_one_file(source.st, target->st))) return {};
  shadow(from, true);
  shadow(to, true);
  if (flags == RENAME_EXCHANGE) return exchange(from, to);
  const bool is_dir = S_ISDIR(source.st.st_mode);
  CACHESHIM_CHECK(is_dir ? copy_up_tree(from) : copy_up_found(from, source, kWholeFile));
  const bool base_has_source = static_cast<bool>(find_in_base(from));
  if (target) CACHESHIM_CHECK(hide_in_base(to, *target));
  if (!is_dir) begin_entry(to);
  CACHESHIM_CHECK(move_over(from, to, is_dir));
  if (target) forget_link_if_gone(target->st);
  if (base_has_source) CACHESHIM_CHECK(add_whiteout(from));
  remove_whiteout(to);
  return {};
}

Status Overlay::move_over(const std::string& from, const std::string& to, bool is_dir) {
  CACHESHIM_CHECK(ensure_directory(std::string(parent_path(to))));
  const Status moved = remove_last_name(to, [&]() REQUIRES_SHARED(mutex_) -> Status {
    Status renamed = upper_paths_->rename(from, to);
    if (!renamed.failed_with(ENOTEMPTY) && !renamed.failed_with(EEXIST)) return renamed;
    // The target is empty in the merged view but contains whiteouts in the layer.
    CACHESHIM_CHECK(upper_paths_->rename(from, to, RENAME_EXCHANGE));
    CACHESHIM_TRY(old_parent, open_upper_parent(from));
    const std::string staged = staged_.new_name();
    CACHESHIM_CHECK(
        sys::rename_at(old_parent.get(), std::string(base_name(from)), work_->get(), staged));
    (void)sys::remove_tree(work_->get(), staged);  // the next daemon empties the directory
    return {};
  });
  if (!moved || !is_dir) return moved;
  index_.erase_tree(to);
  index_.move_tree(from, to);
  return {};
}

Status Overlay::exchange(const std::string& from, const std::string& to) {
  for (const std::string& path : {from, to}) {
    CACHESHIM_TRY(found, find(path));
    CACHESHIM_CHECK(S_ISDIR(found.st.st_mode) ? copy_up_tree(path) : copy_up(path));
  }
  CACHESHIM_CHECK(upper_paths_->rename(from, to, RENAME_EXCHANGE));
  index_.exchange_trees(from, to);
  return {};
}

}  // namespace cacheshim
