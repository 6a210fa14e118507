// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/unit/support/scratch.h"

namespace cacheshim {

// A directory that simulates /proc.
class FakeProc {
 public:
  struct Entry {
    pid_t parent = 1;
    std::string environment = {};
    std::string cgroup = "0::/\n";
    char state = 'S';
    std::uint64_t start_time = 100;
    uid_t uid = 31001;
  };
  void add(pid_t pid, const Entry& entry) const {
    const std::string name = std::to_string(pid);
    scratch_.write(name + "/stat",
                   fmt::format("{} (a b) c) {} {} 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 0\n", pid,
                               entry.state, entry.parent, entry.start_time));
    scratch_.write(name + "/environ", entry.environment);
    scratch_.write(name + "/cgroup", entry.cgroup);
    scratch_.write(name + "/status", fmt::format("Name:\tx\nUid:\t{0}\t{0}\t{0}\t{0}\n", entry.uid));
  }
  void remove(pid_t pid) const { std::filesystem::remove_all(scratch_ / std::to_string(pid)); }
  const std::string& path() const { return scratch_.path(); }

 private:
  Scratch scratch_;
};

}  // namespace cacheshim
