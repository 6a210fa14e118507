// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include "shim/direct/direct_descriptor.h"
#include "shim/routing/routed_call.h"

// fstat of a directly opened file shows the file as the view does: st_dev is the mount's. So fstat
// agrees with stat of the file's path, whether the base or the mount answers the stat. The inode
// numbers already agree, because the mount shows the base's own (fuse/nodes/inode_numbers.h).

namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

CACHESHIM_EXPORT int fstat(int fd, struct stat* out) noexcept {
  return direct::fstat_as_view(fd, out, [=] { return real::fstat(fd, out); });
}

CACHESHIM_EXPORT int fstat64(int fd, struct stat64* out) noexcept {
  return direct::fstat_as_view(fd, out, [=] { return real::fstat64(fd, out); });
}

CACHESHIM_EXPORT int __fxstat(int version, int fd, struct stat* out) noexcept {
  const auto call = [=] { return real::__fxstat(version, fd, out); };
  return cacheshim::is_stat_version(version) ? direct::fstat_as_view(fd, out, call) : call();
}

CACHESHIM_EXPORT int __fxstat64(int version, int fd, struct stat64* out) noexcept {
  const auto call = [=] { return real::__fxstat64(version, fd, out); };
  return cacheshim::is_stat_version(version) ? direct::fstat_as_view(fd, out, call) : call();
}
