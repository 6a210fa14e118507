// SPDX-License-Identifier: Apache-2.0
#include "cli/mounting/standby.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <system_error>

#include "cli/failure.h"
#include "common/exit_codes.h"
#include "common/names.h"
#include "store/layer/closing_record.h"

namespace cacheshim::cli {
namespace {

// Whether the path still leads to the open file. A daemon that exits cleanly removes its run
// directory, and the next daemon creates a new one.
bool is_current(int fd, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

}  // namespace

StandbyEnd wait_as_standby(const std::string& run_dir, const std::string& cycle, UniqueFd& lock) {
  if (run_dir.empty()) {
    throw Failure(kExitUnavailable,
                  "a standby needs a run directory, and there is no place for one");
  }
  const std::string path = fmt::format("{}/{}", run_dir, kRunLockFile);
  // Ignores closing records of other cycles. Checks the record before and after each wait.
  while (recorded_closing(run_dir) != cycle) {
    UniqueFd held(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!held && errno == ENOENT) {
      return recorded_closing(run_dir) == cycle ? StandbyEnd::kClosed : StandbyEnd::kDied;
    }
    int status = held ? ::flock(held.get(), LOCK_EX) : -1;
    if (status == -1 && errno == EINTR) continue;
    if (status == -1) {
      throw Failure(kExitUnavailable, fmt::format("cannot stand by at '{}': {}", path,
                                                  std::generic_category().message(errno)));
    }
    if (!is_current(held.get(), path) || recorded_closing(run_dir) == cycle) continue;
    lock = std::move(held);
    return StandbyEnd::kDied;
  }
  return StandbyEnd::kClosed;
}

}  // namespace cacheshim::cli
