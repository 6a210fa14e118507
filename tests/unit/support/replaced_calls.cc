// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/support/replaced_calls.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace cacheshim {

thread_local std::function<int(const std::function<int()>& link)> on_link;
thread_local std::function<void()> before_statx;
thread_local std::function<void()> before_touch;
thread_local int stat_calls = 0;

namespace {

void run_once(std::function<void()>& hook) {
  if (const auto once = std::exchange(hook, nullptr)) once();
}

}  // namespace
}  // namespace cacheshim

using namespace cacheshim;

extern "C" int linkat(int dir, const char* name, int new_dir, const char* new_name,
                      int flags) noexcept {
  const auto link = [=] {
    return static_cast<int>(::syscall(SYS_linkat, dir, name, new_dir, new_name, flags));
  };
  const auto once = std::exchange(on_link, nullptr);
  return once ? once(link) : link();
}

extern "C" int statx(int dir, const char* name, int flags, unsigned mask,
                     struct statx* out) noexcept {
  run_once(before_statx);
  return static_cast<int>(::syscall(SYS_statx, dir, name, flags, mask, out));
}

extern "C" int fstatat(int dir, const char* name, struct stat* out, int flags) noexcept {
  ++stat_calls;
  return static_cast<int>(::syscall(SYS_newfstatat, dir, name, out, flags));
}

extern "C" int utimensat(int dir, const char* name, const timespec* times, int flags) noexcept {
  run_once(before_touch);
  return static_cast<int>(::syscall(SYS_utimensat, dir, name, times, flags));
}
