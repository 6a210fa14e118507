// SPDX-License-Identifier: Apache-2.0
#include "fuse/plain_overlay.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>

#include <cstring>
#include <string>
#include <utility>

#include "common/exit_codes.h"
#include "store/sys.h"

namespace cacheshim {
namespace {

constexpr const char* kWorkName = "work";  // as the kernel's overlayfs has it

DaemonError refuse(const std::string& path, const std::string& why) {
  return {kExitUnavailable, fmt::format("cannot use '{}': {}; nothing was mounted", path, why)};
}

DaemonError refuse(const std::string& path, Errno error) {
  const bool is_taken = error == EWOULDBLOCK;
  return refuse(path, is_taken ? "another overlay has it" : std::strerror(error.code()));
}

Result<UniqueFd> open_folder(const std::string& path) {
  return sys::open_path(path, O_RDONLY | O_DIRECTORY);
}

// The lock goes with the descriptor.
Result<UniqueFd> take_folder(const std::string& path) {
  CACHESHIM_TRY(folder, open_folder(path));
  CACHESHIM_CHECK(sys::lock_file(folder.get(), LOCK_EX | LOCK_NB));
  return folder;
}

Result<UniqueFd> make_work(int parent) {
  const Status made = sys::make_dir_at(parent, kWorkName, 0700);
  if (!made && !made.failed_with(EEXIST)) return made.error();
  return sys::open_beneath(parent, kWorkName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

}  // namespace

std::variant<PlainOverlay, DaemonError> open_plain_overlay(const OverlayFolders& folders) {
  PlainOverlay overlay;
  for (const std::string& path : folders.lowers) {
    auto lower = open_folder(path);
    if (!lower) return refuse(path, lower.error());
    overlay.lowers.push_back(*std::move(lower));
  }
  if (folders.upper.empty()) return overlay;
  auto upper = take_folder(folders.upper);
  if (!upper) return refuse(folders.upper, upper.error());
  auto work_parent = take_folder(folders.work);
  if (!work_parent) return refuse(folders.work, work_parent.error());
  auto work = make_work(work_parent->get());
  if (!work) return refuse(folders.work, work.error());
  const auto upper_st = sys::stat_fd(upper->get());
  const auto work_st = sys::stat_fd(work->get());
  if (!upper_st || !work_st || upper_st->st_dev != work_st->st_dev) {
    return refuse(folders.work, "it is not on the file system of the upperdir");
  }
  overlay.upper = *std::move(upper);
  overlay.work_parent = *std::move(work_parent);
  overlay.work = *std::move(work);
  return overlay;
}

}  // namespace cacheshim
