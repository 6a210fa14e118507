// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/plain_overlay.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/exit_codes.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr const char* kWorkName = "work";  // the name that the kernel's overlayfs uses

DaemonError refuse(const std::string& path, const std::string& why) {
  return {kExitUnavailable, fmt::format("cannot use '{}': {}; nothing was mounted", path, why)};
}

DaemonError refuse(const std::string& path, Errno error) {
  if (error != EWOULDBLOCK) return refuse(path, std::strerror(error.code()));
  return refuse(path, "another overlay has it as its upperdir or workdir");
}

Result<UniqueFd> open_directory(const std::string& path) {
  return sys::open_path(path, O_RDONLY | O_DIRECTORY);
}

// Opens and locks the directory. Closing the descriptor releases the lock.
Result<UniqueFd> take_directory(const std::string& path) {
  CACHESHIM_TRY(directory, open_directory(path));
  CACHESHIM_CHECK(sys::lock_file(directory.get(), LOCK_EX | LOCK_NB));
  return directory;
}

// Locks `work` shared. The lock shows that the overlay is mounted: serve_overlay() releases it once the mount is gone,
// which may be before the daemon exits. `cacheshim overlay` probes this lock if it finds the directories in use. The
// probe releases its own lock immediately.
UniqueFd mark_served(int work) {
  auto mark = sys::open_beneath(work, "", O_RDONLY | O_DIRECTORY);
  if (!mark || !sys::lock_file(mark->get(), LOCK_SH))
    return UniqueFd();  // a probe then concludes that the mount is gone
  return *std::move(mark);
}

Result<UniqueFd> make_work(int parent) {
  CACHESHIM_CHECK(sys::ensure_dir_at(parent, kWorkName, 0700));
  return sys::open_beneath(parent, kWorkName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

// Opens the directories again through copies of their mounts. Keeps the locks.
Status reopen(const OverlayDirectories& directories, PlainOverlay& overlay) {
  for (std::size_t at = 0; at < overlay.lowers.size(); ++at) {
    UniqueFd& lower = overlay.lowers[at];
    CACHESHIM_TRY(opened, overlay.mounts.reopen({directories.lowers[at], lower.get()}));
    lower = std::move(opened);
  }
  if (!overlay.upper || !overlay.mounts.have_atimes()) return {};
  CACHESHIM_TRY(opened, overlay.mounts.reopen_both({directories.upper, overlay.upper.get()},
                                                   {directories.work, overlay.work_parent.get()}));
  CACHESHIM_TRY(work, sys::open_beneath(opened.second.get(), kWorkName, O_RDONLY | O_DIRECTORY));
  overlay.upper_lock = std::exchange(overlay.upper, std::move(opened.first));
  overlay.work = std::move(work);
  return {};
}

// Whether the mount point lies below a lower directory. A mount on the lower directory itself is not visible in the
// overlay.
bool sees_itself(const DaemonOptions& options) {
  const auto& lowers = options.overlay->lowers;
  return std::any_of(lowers.begin(), lowers.end(), [&](const std::string& lower) {
    return options.mount_point.starts_with(lower == "/" ? lower : lower + "/");
  });
}

// Opens the directories through copies of their mounts if that is needed. If a failure only affects
// access times, the mount still succeeds.
std::variant<PlainOverlay, DaemonError> with_copies(PlainOverlay overlay,
                                                    const DaemonOptions& options) {
  if (!overlay.mounts.are_needed()) return overlay;
  const Status opened = reopen(*options.overlay, overlay);
  if (opened) return overlay;
  if (sees_itself(options) && !opened.failed_with(EXDEV)) {
    return refuse(options.mount_point, "it lies in a lowerdir, whose mount cannot be copied");
  }
  spdlog::warn("cannot copy the mounts of '{}' and the other directories: {}; access times depend on the "
               "flags of these mounts",
               options.overlay->lowers.front(), std::strerror(opened.error().code()));
  return overlay;
}

}  // namespace

std::variant<PlainOverlay, DaemonError> open_plain_overlay(const DaemonOptions& options) {
  const OverlayDirectories& directories = *options.overlay;
  PlainOverlay overlay;
  overlay.mounts = MountCopies(options.mount_flags, sees_itself(options));
  for (const std::string& path : directories.lowers) {
    auto lower = open_directory(path);
    if (!lower) return refuse(path, lower.error());
    overlay.lowers.push_back(*std::move(lower));
  }
  if (directories.upper.empty()) return with_copies(std::move(overlay), options);
  auto upper = take_directory(directories.upper);
  if (!upper) return refuse(directories.upper, upper.error());
  auto work_parent = take_directory(directories.work);
  if (!work_parent) return refuse(directories.work, work_parent.error());
  auto work = make_work(work_parent->get());
  if (!work) return refuse(directories.work, work.error());
  const auto upper_st = sys::stat_fd(upper->get());
  const auto work_st = sys::stat_fd(work->get());
  if (!upper_st || !work_st || upper_st->st_dev != work_st->st_dev) {
    return refuse(directories.work, "it is not on the file system of the upperdir");
  }
  overlay.upper = *std::move(upper);
  overlay.work_parent = *std::move(work_parent);
  overlay.work = *std::move(work);
  overlay.served = mark_served(overlay.work.get());
  return with_copies(std::move(overlay), options);
}

}  // namespace cacheshim
