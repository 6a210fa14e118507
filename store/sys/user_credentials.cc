// SPDX-License-Identifier: Apache-2.0
#include "store/sys/user_credentials.h"

#include <linux/magic.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace cacheshim {
namespace {

constexpr uid_t kNobody = 65534;
constexpr std::uint32_t kResource = 1U << CAP_SYS_RESOURCE;
constexpr long kF2fs = 0xf2f52010;

// Whether the file system of `fd` is of a type that can reserve blocks for a user id. On other file
// systems, the user id makes no difference.
bool keeps_blocks(int fd) {
  struct statfs st {};
  if (::fstatfs(fd, &st) == -1) return false;
  return st.f_type == EXT4_SUPER_MAGIC || st.f_type == kF2fs;
}

__user_cap_header_struct header() { return {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0}; }

// Whether setfsuid(2) keeps the thread's capabilities. Caches the result, because only the main thread changes this
// setting, before it starts any other thread.
bool setfsuid_keeps_capabilities() {
  thread_local const bool keeps = (::prctl(PR_GET_SECUREBITS) & SECBIT_NO_SETUID_FIXUP) != 0;
  return keeps;
}

// A failure leaves the thread's capabilities as they are.
void set_capabilities(const std::array<__user_cap_data_struct, 2>& sets) {
  __user_cap_header_struct mine = header();
  (void)::syscall(SYS_capset, &mine, sets.data());
}

}  // namespace

UserCredentials::UserCredentials(int fd) {
  if (::geteuid() != 0 || !keeps_blocks(fd)) return;
  __user_cap_header_struct mine = header();
  if (::syscall(SYS_capget, &mine, before_.data()) == -1) return;
  is_changed_ = true;
  // setfsuid(2) affects only this thread, reports no errors, and may drop capabilities.
  (void)::setfsuid(kNobody);
  auto sets = before_;
  sets[0].effective &= ~kResource;
  if (sets[0].effective != before_[0].effective || !setfsuid_keeps_capabilities())
    set_capabilities(sets);
}

UserCredentials::~UserCredentials() {
  if (!is_changed_) return;
  // If setfsuid(2) has dropped capabilities, this call gives the thread all file-system capabilities in its permitted
  // set (capabilities(7)).
  (void)::setfsuid(0);
  if ((before_[0].effective & kResource) != 0) set_capabilities(before_);
}

}  // namespace cacheshim
