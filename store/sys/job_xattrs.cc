// SPDX-License-Identifier: Apache-2.0
#include "store/sys/job_xattrs.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "store/sys/new_object.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

Result<std::vector<std::string>> job_xattrs_of(int fd) {
  auto names = sys::list_xattrs(fd);
  if (names.failed_with(EOPNOTSUPP)) return std::vector<std::string>();
  if (names) std::erase_if(*names, [](const auto& name) { return !is_lost_in_base(name); });
  return names;
}

}  // namespace

bool is_lost_in_base(std::string_view xattr) {
  return xattr.starts_with("user.") || xattr.starts_with("trusted.") || xattr == kAccessAcl ||
         xattr == kDefaultAcl || xattr == kCapability;
}

Status remove_job_xattrs(int fd) {
  CACHESHIM_TRY(names, job_xattrs_of(fd));
  for (const std::string& name : names) {
    const Status removed = sys::remove_xattr(fd, name.c_str());
    if (!removed && !removed.failed_with(ENODATA)) return removed;
  }
  return {};
}

Result<bool> has_job_xattrs(int fd) {
  CACHESHIM_TRY(names, job_xattrs_of(fd));
  return !names.empty();
}

}  // namespace cacheshim
