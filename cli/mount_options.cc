// SPDX-License-Identifier: Apache-2.0
#include "cli/mount_options.h"

#include <fmt/format.h>
#include <sys/mount.h>

#include <string_view>

#include "cli/failure.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

struct Option {
  std::string_view name;
  unsigned long set;
  unsigned long clear;
};

// What mount(8) passes on for an ordinary fstab line is accepted where it says what we do anyway.
// suid and dev are not: they would promise what is never so.
constexpr Option kOptions[] = {
    {"ro", MS_RDONLY, 0},         {"rw", 0, MS_RDONLY},       {"noexec", MS_NOEXEC, 0},
    {"exec", 0, MS_NOEXEC},       {"noatime", MS_NOATIME, 0}, {"nodiratime", MS_NODIRATIME, 0},
    {"relatime", MS_RELATIME, 0}, {"nosuid", MS_NOSUID, 0},   {"nodev", MS_NODEV, 0},
    {"owner=squash", 0, 0},       {"allow_other", 0, 0},      {"default_permissions", 0, 0},
    {"defaults", 0, 0},
};

std::string known_options() {
  std::string names;
  for (const Option& option : kOptions) {
    if (!names.empty()) names += ", ";
    names += option.name;
  }
  return names;
}

const Option& find_option(std::string_view name) {
  for (const Option& option : kOptions) {
    if (option.name == name) return option;
  }
  throw Failure(kExitUsage,
                fmt::format("unknown mount option '{}'; known are {}", name, known_options()));
}

}  // namespace

unsigned long parse_mount_options(const std::vector<std::string>& options) {
  unsigned long flags = 0;
  for (const std::string& name : options) {
    if (name.empty()) continue;
    const Option& option = find_option(name);
    flags = (flags & ~option.clear) | option.set;
  }
  return flags;
}

}  // namespace cacheshim::cli
