// SPDX-License-Identifier: Apache-2.0
#include "store/look_root.h"

#include <fcntl.h>

#include <climits>

#include "store/sys.h"

namespace cacheshim {
namespace {

UniqueFd clone_or_nothing(int folder) {
  auto clone = sys::clone_without_symlinks(folder);
  return clone ? *std::move(clone) : UniqueFd();
}

}  // namespace

LookRoot::LookRoot(int folder) : folder_(folder), clone_(clone_or_nothing(folder)) {}

Result<struct stat> LookRoot::stat(const std::string& path) const {
  // A single component is safe anyway: stat_at() does not follow it.
  if (path.find('/') == std::string::npos) return sys::stat_at(folder_, path);
  if (clone_ && path.size() < PATH_MAX) return sys::stat_at(clone_.get(), path);
  CACHESHIM_TRY(fd, sys::open_beneath(folder_, path, O_PATH | O_NOFOLLOW));
  return sys::stat_fd(fd.get());
}

}  // namespace cacheshim
