// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/pending_call.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <array>
#include <chrono>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "store/sys/process.h"

namespace cacheshim {
namespace {

constexpr int kMostTries = 20;
constexpr auto kReplyPause = std::chrono::microseconds(100);

struct Call {
  long number = -1;
  std::array<unsigned long, 4> arguments{};
};

// For the format, see proc_pid_syscall(5): the call's number, then its arguments. The text may also be "running".
std::optional<Call> parse_call(const std::string& text) {
  std::istringstream fields(text);
  Call call;
  if (!(fields >> call.number)) return std::nullopt;
  for (unsigned long& argument : call.arguments) fields >> std::hex >> argument;
  return call;
}

std::optional<Call> call_of(pid_t thread) {
  const auto text = read_proc(thread, "syscall");
  return text ? parse_call(*text) : std::nullopt;
}

// /proc shows the call only while the thread sleeps. The thread has sent its request, and falls asleep within
// microseconds, so this function tries several times.
std::optional<Call> pending_call_of(pid_t thread) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (const auto call = call_of(thread)) return call;
    std::this_thread::sleep_for(kReplyPause);
  }
  return std::nullopt;
}

// False for O_CREAT, which may create the object, and for O_PATH: an open with O_PATH returns a descriptor of the node
// that the lookup returned, without sending another request.
bool opens_existing(unsigned long flags) { return (flags & (O_CREAT | O_PATH)) == 0; }

}  // namespace

bool can_wait_after_lookup(pid_t thread) {
  const auto call = pending_call_of(thread);
  if (!call) return false;
  switch (call->number) {
#ifdef SYS_stat
    case SYS_stat:
    case SYS_lstat:
    case SYS_access:
      return true;
    case SYS_open:
      return opens_existing(call->arguments[1]);
#endif
    case SYS_newfstatat:
    case SYS_faccessat:
    case SYS_faccessat2:
    case SYS_chdir:
      return true;
    case SYS_openat:
      return opens_existing(call->arguments[2]);
    case SYS_statx:  // with AT_STATX_DONT_SYNC, the kernel uses the attributes from the lookup
      return (call->arguments[2] & AT_STATX_DONT_SYNC) == 0;
    default:
      return false;
  }
}

bool may_complete_entries(pid_t thread) {
  const auto call = call_of(thread);
  if (!call) return false;
  switch (call->number) {
#ifdef SYS_rename
    case SYS_rename:
    case SYS_link:
#endif
    case SYS_renameat:
    case SYS_renameat2:
    case SYS_linkat:
    case SYS_close:
      return true;
    default:
      return false;
  }
}

}  // namespace cacheshim
