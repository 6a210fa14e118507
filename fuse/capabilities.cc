// SPDX-License-Identifier: Apache-2.0
#include "fuse/capabilities.h"

#include <linux/securebits.h>
#include <sys/capability.h>
#include <sys/prctl.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <type_traits>
#include <vector>

namespace cacheshim {
namespace {

// docs/security.md lists the same capabilities, and integrations/systemd/cacheshim.service lists those that are always
// needed. tests/hostile compares the lists.
constexpr cap_value_t kAlwaysNeeded[] = {
    CAP_CHOWN,            // gives objects to the users who create them
    CAP_DAC_OVERRIDE,     // opens the users' files and directories in the layers
    CAP_DAC_READ_SEARCH,  // finds the directory of a fanotify event: open_by_handle_at(2)
    CAP_FOWNER,           // changes modes, times and ACLs of the users' files
    CAP_FSETID,           // keeps set-id bits that the calling user may keep
    CAP_LEASE,            // detects mappings of the users' files: fcntl(2), F_SETLEASE
    CAP_SETUID,           // keeps the kernel's writes to layers out of root's reserved blocks: setfsuid(2)
    CAP_SYS_ADMIN,        // mounts, watches file systems by fanotify, copies mounts, FUSE passthrough
    CAP_SYS_NICE,         // leaves SCHED_IDLE
    CAP_SYS_PTRACE,       // reads the environment and the pending system call of the users' processes
};

// With owner=squash, the daemon makes no device nodes and copies no file capabilities.
constexpr cap_value_t kNeededToKeepOwners[] = {
    CAP_MKNOD,    // makes device nodes, and copies them up
    CAP_SETFCAP,  // copies files that have capabilities
};

// For a remote tier, and to serve Prometheus, the daemon starts helpers, which become another user.
constexpr cap_value_t kNeededForHelper[] = {
    CAP_KILL,    // ends the helper
    CAP_SETGID,  // the helper gives up root's groups
};

using Needed = std::vector<cap_value_t>;

struct FreeSet {
  void operator()(cap_t set) const { (void)::cap_free(set); }
};
using CapabilitySet = std::unique_ptr<std::remove_pointer_t<cap_t>, FreeSet>;

Needed needed_with(const OwnerMode& owners, bool starts_helper) {
  Needed needed(std::begin(kAlwaysNeeded), std::end(kAlwaysNeeded));
  if (owners.keep) {
    needed.insert(needed.end(), std::begin(kNeededToKeepOwners), std::end(kNeededToKeepOwners));
  }
  if (starts_helper)
    needed.insert(needed.end(), std::begin(kNeededForHelper), std::end(kNeededForHelper));
  return needed;
}

// Has no effect without CAP_SETPCAP. In that case no_new_privs suffices: a program that this process executes gets no
// capability that the process lacks.
void limit_bounding_set(const Needed& needed) {
  for (cap_value_t one = 0; ::cap_get_bound(one) >= 0; ++one) {
    const bool is_needed = std::find(needed.begin(), needed.end(), one) != needed.end();
    if (!is_needed) (void)::cap_drop_bound(one);
  }
}

// Has no effect without CAP_SETPCAP.
void keep_capabilities_at_setfsuid() {
  const int bits = ::prctl(PR_GET_SECUREBITS);
  if (bits >= 0) (void)::prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
}

// Copies one set (`flag`: permitted or effective) of the needed capabilities from `from` to `to`. The two libcap
// functions fail only for invalid arguments.
void copy_needed(const Needed& needed, cap_t from, cap_t to, cap_flag_t flag) {
  for (const cap_value_t one : needed) {
    cap_flag_value_t value = CAP_CLEAR;
    (void)::cap_get_flag(from, one, flag, &value);
    (void)::cap_set_flag(to, flag, 1, &one, value);
  }
}

}  // namespace

Status drop_capabilities(const OwnerMode& owners, bool starts_helper) {
  const Needed needed = needed_with(owners, starts_helper);
  limit_bounding_set(needed);
  keep_capabilities_at_setfsuid();
  const CapabilitySet current(::cap_get_proc());
  const CapabilitySet kept(::cap_init());  // empty
  if (!current || !kept) return Errno::last();
  copy_needed(needed, current.get(), kept.get(), CAP_PERMITTED);
  copy_needed(needed, current.get(), kept.get(), CAP_EFFECTIVE);
  // The inheritable set is now empty, so the kernel also clears the ambient set.
  if (::cap_set_proc(kept.get()) == -1) return Errno::last();
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1) return Errno::last();
  return {};
}

}  // namespace cacheshim
