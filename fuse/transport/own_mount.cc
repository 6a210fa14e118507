// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/own_mount.h"

#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
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

// Runs in the child. Makes only system calls, because other threads may have held locks when clone(2) copied the
// memory. The child must not share the daemon's memory: the mapping of a ring would keep the ring, and with it
// /dev/fuse, open after the daemon's death (so RequestRing excludes its rings from a fork). CLOSE_RANGE_UNSHARE gives
// the child a separate, empty descriptor table and closes no descriptor of the daemon. Linux copies the first 64
// descriptors and then closes the copies. If the daemon closes a file between these two steps, the file stays open, and
// locked, a little longer (see LockOwners::drop).
[[gnu::no_sanitize("address", "thread", "undefined")]] int make_call(void* argument) {
  const auto* const call = static_cast<const Call*>(argument);
  if (::syscall(SYS_close_range, 0U, ~0U, CLOSE_RANGE_UNSHARE) != 0) return 1;
  if (call->detaches) return ::umount2(call->mount_point, MNT_DETACH) == 0 ? 0 : 1;
  if (call->core >= 0 && call->core < CPU_SETSIZE) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<unsigned>(call->core), &cores);
    (void)::sched_setaffinity(0, sizeof cores, &cores);  // if the core is offline, the child runs anywhere
  }
  struct statfs ignored;
  return ::statfs(call->mount_point, &ignored) == 0 ? 0 : 1;
}

// Starts the child, which sends no signal when it exits. Returns its process id; -1 if it was not created.
pid_t start(const Call& call, int flags) {
  alignas(64) static thread_local char stack[kStackBytes];
  return ::clone(make_call, stack + kStackBytes, flags | CLONE_FILES, const_cast<Call*>(&call));
}

// Waits for the child's exit. With WNOHANG, returns 0 if it has not exited yet.
pid_t wait_for(pid_t child, int flags) {
  pid_t ended;
  do {
    ended = ::waitpid(child, nullptr, __WALL | flags);
  } while (ended == -1 && errno == EINTR);
  return ended;
}

class Process final : public QueueDrain::Probe {
 public:
  explicit Process(pid_t process) : process_(process) {}
  ~Process() override {
    if (is_over()) return;
    (void)::kill(process_, SIGKILL);
    (void)wait_for(process_, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  bool is_over() override {
    if (process_ != 0 && wait_for(process_, WNOHANG) != 0) process_ = 0;
    return process_ == 0;
  }

 private:
  pid_t process_;  // 0: it has exited
};

}  // namespace

std::unique_ptr<QueueDrain::Probe> start_probe(const std::string& mount_point, int core) {
  const pid_t process = start({mount_point.c_str(), core, false}, 0);
  if (process == -1) return nullptr;
  return std::make_unique<Process>(process);
}

// With CLONE_VFORK, clone(2) blocks until the child has exited, but a fatal signal ends the wait.
void detach(const std::string& mount_point) {
  const pid_t process = start({mount_point.c_str(), -1, true}, CLONE_VFORK);
  if (process != -1) (void)wait_for(process, 0);
}

}  // namespace cacheshim::own_mount
