// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/start/trusted_paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "common/names.h"
#include "common/root_process.h"
#include "shim/errno_guard.h"
#include "shim/routing/mount_file.h"

namespace cacheshim {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

bool has_uid_0() { return ::geteuid() == 0 || ::getuid() == 0; }

// Not cached: the process may enter another namespace.
UserNamespace own_namespace() {
  char text[4096];
  const Result<std::size_t> got = read_file("/proc/self/uid_map", text, sizeof text);
  return parse_uid_map({text, got ? *got : 0});
}

bool is_own_or_roots(uid_t owner) { return owner == 0 || owner == ::geteuid(); }

bool only_root_writes(const struct stat& directory) {
  if (!S_ISDIR(directory.st_mode) || !is_own_or_roots(directory.st_uid)) return false;
  return (directory.st_mode & kOthersWrite) == 0 || (directory.st_mode & S_ISVTX) != 0;
}

}  // namespace

bool is_root_process() {
  const ErrnoGuard errno_guard;
  return has_uid_0() && !own_namespace().has_one_user;
}

bool may_use_mount(std::string_view path, uid_t owner) {
  const ErrnoGuard errno_guard;
  return owner == 0 || path == kDefaultMountPoint || !has_uid_0() ||
         own_namespace().root_may_use_mount_of(owner);
}

std::string_view user_run_base(const Environment& environment) {
  const ErrnoGuard errno_guard;
  const std::string_view path = environment.find("XDG_RUNTIME_DIR");
  if (path.empty() || *path.data() != '/' || is_root_process()) return {};
  struct stat st;
  if (real::__xstat(kStatVersion, path.data(), &st) != 0) return {};
  const bool is_own = S_ISDIR(st.st_mode) && st.st_uid == ::geteuid();
  return is_own && (st.st_mode & kOthersWrite) == 0 ? path : std::string_view();
}

bool is_path_of_root(const char* path) {
  const ErrnoGuard errno_guard;
  PathBuffer above;
  const std::size_t length = std::strlen(path);
  if (*path != '/' || length >= sizeof above.text) return false;
  for (std::size_t at = 0; at < length; ++at) {
    above.text[at] = path[at];
    if (path[at] != '/') continue;
    above.text[at + 1] = '\0';
    if (at > 0) above.text[at] = '\0';  // lstat(2) follows a symlink if the path ends with a slash
    struct stat st;
    if (real::__lxstat(kStatVersion, above.text, &st) != 0 || !only_root_writes(st)) return false;
    above.text[at] = '/';
  }
  return true;
}

}  // namespace cacheshim
