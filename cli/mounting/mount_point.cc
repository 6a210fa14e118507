// SPDX-License-Identifier: Apache-2.0
#include "cli/mounting/mount_point.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "cli/failure.h"
#include "cli/paths.h"
#include "common/exit_codes.h"
#include "common/mount_info.h"
#include "common/names.h"

namespace cacheshim::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_mount_point(const std::string& why) {
  throw Failure(kExitUnavailable, why + "; nothing was mounted");
}

// Unmounts a mount whose daemon is dead. Throws Failure (unavailable) if anything else is mounted there.
void free_dead_mount(const std::string& path) {
  const auto mount = find_mount(read_mounts(), path);
  if (!mount) return;
  if (mount->type != kFilesystemType || !is_dead_mount(path)) {
    refuse_mount_point(fmt::format("mount point '{}' is busy: a {} file system is mounted there",
                                   path, mount->type));
  }
  if (::umount2(path.c_str(), MNT_DETACH) != 0) {
    refuse_mount_point(fmt::format("cannot free the dead mount at '{}': {}", path,
                                   std::generic_category().message(errno)));
  }
  print_line(fmt::format("freed the mount at '{}', whose daemon was dead; mounting anew", path));
  free_dead_mount(path);  // several dead mounts may cover each other
}

// Returns the name of an entry of the directory; "" if it is empty or unreadable.
std::string find_any_entry(const std::string& path) {
  std::error_code error;
  const fs::directory_iterator entries(path, error);
  return error || entries == fs::directory_iterator() ? "" : entries->path().filename().string();
}

}  // namespace

std::string check_mount_point(const std::string& given, bool may_be_nonempty) {
  const std::string path = resolve_path(given);
  free_dead_mount(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    refuse_mount_point(fmt::format("mount point '{}' cannot be used: {}{}", given,
                                   std::generic_category().message(errno),
                                   errno == ENOENT ? "; make the directory first" : ""));
  }
  if (!S_ISDIR(status.st_mode))
    refuse_mount_point(fmt::format("mount point '{}' is not a directory", given));
  if (may_be_nonempty) return path;
  if (const std::string held = find_any_entry(path); !held.empty()) {
    refuse_mount_point(
        fmt::format("mount point '{}' is not empty: the mount would hide '{}'; name an empty "
                    "directory, or mount with -o nonempty",
                    given, held));
  }
  return path;
}

std::string refuse_empty_path(const std::string& path) {
  return path.empty() ? "the path is empty" : "";
}

void check_apart(const std::string& mount_point, std::string_view what,
                 const std::string& directory) {
  std::string why;
  if (mount_point == directory) {
    why = fmt::format("it is the {} itself", what);
  } else if (lies_in(mount_point, directory)) {
    why = fmt::format("it lies in the {} '{}'", what, directory);
  } else if (lies_in(directory, mount_point)) {
    why = fmt::format("the {} '{}' lies in it", what, directory);
  } else {
    return;
  }
  throw Failure(kExitUsage, fmt::format("cannot mount at '{}': {}; name a directory outside it; "
                                        "nothing was mounted",
                                        mount_point, why));
}

}  // namespace cacheshim::cli
