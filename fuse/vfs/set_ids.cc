// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/set_ids.h"

#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Assumes that only root has CAP_FSETID, because the daemon cannot see capabilities.
bool may_keep_any(const Caller& caller) { return caller.uid == 0; }

bool is_in_group(const Caller& caller, gid_t group) {
  if (caller.gid == group) return true;
  const std::vector<gid_t> groups = groups_of(caller.tid);
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

Status clear_bits(int fd, const struct stat& st, mode_t bits) {
  if ((st.st_mode & bits) == 0) return {};
  return sys::set_mode(fd, st.st_mode & 07777 & ~bits);
}

}  // namespace

Status drop_set_ids(const Caller& caller, int fd, const struct stat& shown) {
  const bool has_any = (shown.st_mode & (S_ISUID | S_ISGID)) != 0;
  if (!has_any || !S_ISREG(shown.st_mode) || may_keep_any(caller)) return {};
  const bool keeps_group = (shown.st_mode & S_IXGRP) == 0 && is_in_group(caller, shown.st_gid);
  return clear_bits(fd, shown, keeps_group ? S_ISUID : S_ISUID | S_ISGID);
}

Status drop_set_ids_on_chown(int fd) {
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  if (!S_ISREG(st.st_mode)) return {};
  return clear_bits(fd, st, (st.st_mode & S_IXGRP) == 0 ? S_ISUID : S_ISUID | S_ISGID);
}

Status drop_foreign_set_group_id(const Caller& caller, int fd) {
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  const bool has_it = (st.st_mode & S_ISGID) != 0;
  if (!has_it || may_keep_any(caller) || is_in_group(caller, st.st_gid)) return {};
  return clear_bits(fd, st, S_ISGID);
}

Result<mode_t> set_ids_to_refuse(const OwnerMode& owners, const Caller& caller, int fd) {
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  if (S_ISDIR(st.st_mode)) return mode_t{0};
  if (!may_keep_any(caller) && st.st_uid != caller.uid) return mode_t{S_ISUID | S_ISGID};
  mode_t refused = 0;
  if (owners.shown_uid && st.st_uid != *owners.shown_uid) refused |= S_ISUID;
  if (owners.shown_gid && st.st_gid != *owners.shown_gid) refused |= S_ISGID;
  return refused;
}

mode_t set_ids_to_refuse_at_creation(const Caller& caller) {
  return may_keep_any(caller) || caller.uid == sys::own_uid() ? 0 : S_ISUID | S_ISGID;
}

}  // namespace cacheshim
