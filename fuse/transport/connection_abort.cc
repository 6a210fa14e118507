// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/connection_abort.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/unique_fd.h"

namespace cacheshim {

Status abort_connection(dev_t device) {
  const UniqueFd context(::fsopen("fusectl", FSOPEN_CLOEXEC));
  if (!context) return Errno::last();
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == -1) {
    return Errno::last();
  }
  const UniqueFd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
  if (!mount) return Errno::last();
  const std::string file = fmt::format("{}/abort", minor(device));
  const UniqueFd abort(::openat(mount.get(), file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!abort || ::write(abort.get(), "1", 1) == -1) return Errno::last();
  return {};
}

}  // namespace cacheshim
