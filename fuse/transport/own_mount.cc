// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/own_mount.h"

#include <linux/close_range.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace cacheshim::own_mount {
namespace {

constexpr std::size_t kStackBytes = std::size_t{16} << 10;

struct Call {
  const char* mount_point;
  int core;
  bool detaches;
};

// Runs in the child. Makes system calls only, since other threads may have held any lock. The child must not
// share the daemon's memory: the mapping of a ring keeps the ring, and with it /dev/fuse, when the daemon is
// dead (so RequestRing keeps its rings out of a fork). CLOSE_RANGE_UNSHARE gives the child an empty descriptor
// table of its own: nothing is copied, and no descriptor of the daemon is closed.
[[gnu::no_sanitize("address", "thread", "undefined")]] int make_call(void* argument) {
  const auto* const call = static_cast<const Call*>(argument);
  if (::syscall(SYS_close_range, 0U, ~0U, CLOSE_RANGE_UNSHARE) != 0) return 1;
  if (call->detaches) return ::umount2(call->mount_point, MNT_DETACH) == 0 ? 0 : 1;
  if (call->core >= 0 && call->core < CPU_SETSIZE) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<unsigned>(call->core), &cores);
    (void)::sched_setaffinity(0, sizeof cores, &cores);  // a core that is offline: runs anywhere
  }
  struct statfs ignored;
  return ::statfs(call->mount_point, &ignored) == 0 ? 0 : 1;
}

// CLONE_VFORK waits like a call, but a fatal signal ends the wait.
bool run(const Call& call) {
  alignas(64) static thread_local char stack[kStackBytes];
  constexpr int kFlags = CLONE_VFORK | CLONE_FILES;  // without a signal at its end
  const int child = ::clone(make_call, stack + kStackBytes, kFlags, const_cast<Call*>(&call));
  if (child == -1) return false;
  int status = 0;
  while (::waitpid(child, &status, __WALL) == -1 && errno == EINTR) continue;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

bool ask(const std::string& mount_point, int core) {
  return run({mount_point.c_str(), core, false});
}

void detach(const std::string& mount_point) { (void)run({mount_point.c_str(), -1, true}); }

}  // namespace cacheshim::own_mount
