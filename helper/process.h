// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "common/result.h"

namespace cacheshim::helper {

// A running helper: a program that works for a cacheshim process without that process's privileges. The destructor
// kills it, and blocks up to 2 s until it has exited. Not thread-safe.
class Process {
 public:
  struct Options {
    std::string program;                   // the path
    std::vector<std::string> arguments;    // without the program's name
    std::vector<std::string> environment;  // NAME=VALUE; the helper gets no other variable
    std::vector<int> descriptors;          // borrowed; the helper's descriptors 3, 4 and so on
  };
  // Starts the program in its own session, with /dev/null as its input and output and with default signal handlers.
  // Errors: those of posix_spawn(3) and fcntl(2).
  static Result<Process> start(const Options& options);
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Process();

 private:
  explicit Process(pid_t pid) : pid_(pid) {}

  pid_t pid_;
};

}  // namespace cacheshim::helper
