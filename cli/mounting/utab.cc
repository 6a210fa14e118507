// SPDX-License-Identifier: Apache-2.0
#include "cli/mounting/utab.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "cli/paths.h"
#include "cli/run_environment.h"
#include "common/names.h"
#include "common/root_process.h"
#include "store/sys/system_calls.h"

namespace cacheshim::cli {
namespace {

// Runs a command as root. Variables such as LIBMOUNT_UTAB name files that the command writes. So if
// the environment may come from another user, the command gets an empty one.
void run_silently(std::vector<std::string> words) {
  char* nothing[] = {nullptr};
  char** const environment =
      has_environment_of_another_user(ProcessEnvironment()) ? nothing : environ;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    (void)::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  pid_t child = 0;
  const int spawned = ::posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environment);
  (void)::posix_spawn_file_actions_destroy(&actions);
  while (spawned == 0 && ::waitpid(child, nullptr, 0) == -1 && errno == EINTR) continue;
}

}  // namespace

void note_mount(const std::string& source, const std::string& mount_point) {
  if (!is_real_root()) return;
  forget_mount(mount_point);  // removes the entry of a dead daemon
  run_silently({"/bin/mount", "--fake", "--internal-only", "--no-canonicalize", "-t",
                std::string(kFilesystemType), "-o", "rw,x-cacheshim", "--", source, mount_point});
}

void note_mount_later(const std::string& source, const std::string& mount_point) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() != 0) ::_exit(0);
    (void)sys::close_range(STDERR_FILENO + 1, ~0U, 0);  // closes the daemon's /dev/fuse and locks
    note_mount(source, mount_point);
    ::_exit(0);
  }
  if (child > 0) (void)::waitpid(child, nullptr, 0);
}

void forget_mount(const std::string& mount_point) {
  if (!is_real_root()) return;
  run_silently(
      {"/bin/umount", "--fake", "--internal-only", "--no-canonicalize", "--", mount_point});
}

}  // namespace cacheshim::cli
