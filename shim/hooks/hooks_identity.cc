// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <sched.h>

#include "shim/direct/direct_view.h"
#include "shim/routing/routed_call.h"

// Hooks for calls after which a process may have another user ID, may see other mounts, or may be killed for system
// calls that a direct answer makes. The process must then stop using its view's mappings. The hooks pass the calls
// themselves to libc unchanged.

namespace direct = cacheshim::direct;
namespace real = cacheshim::real;

namespace {

// Forgets the view before and after the call, so that a concurrent thread does not use the old
// state.
template <class Call>
int change_user(Call call) {
  direct::forget_view();
  const int result = call();
  direct::forget_view();
  return result;
}

}  // namespace

CACHESHIM_EXPORT int setuid(uid_t uid) noexcept {
  return change_user([=] { return real::setuid(uid); });
}

CACHESHIM_EXPORT int seteuid(uid_t uid) noexcept {
  return change_user([=] { return real::seteuid(uid); });
}

CACHESHIM_EXPORT int setreuid(uid_t real_id, uid_t effective) noexcept {
  return change_user([=] { return real::setreuid(real_id, effective); });
}

CACHESHIM_EXPORT int setresuid(uid_t real_id, uid_t effective, uid_t saved) noexcept {
  return change_user([=] { return real::setresuid(real_id, effective, saved); });
}

CACHESHIM_EXPORT int setfsuid(uid_t uid) noexcept {
  // setfsuid(2) changes the user ID of the calling thread only, and all threads share the view.
  direct::give_up();
  return real::setfsuid(uid);
}

CACHESHIM_EXPORT int chroot(const char* path) noexcept {
  direct::give_up();
  return real::chroot(path);
}

CACHESHIM_EXPORT int pivot_root(const char* root, const char* old) noexcept {
  direct::give_up();
  return real::pivot_root(root, old);
}

CACHESHIM_EXPORT int setns(int fd, int type) noexcept {
  direct::give_up();
  return real::setns(fd, type);
}

CACHESHIM_EXPORT int unshare(int flags) noexcept {
  if ((flags & (CLONE_NEWNS | CLONE_NEWUSER)) != 0) direct::give_up();
  return real::unshare(flags);
}

// libc declares prctl with "...". Callers pass the integers in the same places as these parameters.
CACHESHIM_EXPORT int hook_prctl(int option, unsigned long a, unsigned long b, unsigned long c,
                                unsigned long d) noexcept __asm__("prctl");
int hook_prctl(int option, unsigned long a, unsigned long b, unsigned long c,
               unsigned long d) noexcept {
  if (option == PR_SET_SECCOMP) direct::give_up_for_filter();
  return real::prctl(option, a, b, c, d);
}
