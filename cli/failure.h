// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace cacheshim::cli {

// Ends a command: main() prints the message, one line, and exits with the code.
class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// Prints "cacheshim: MESSAGE" to stderr. Makes the message printable (common/printable.h), because it may contain names
// of files and text from a daemon.
void print_line(const std::string& message);

}  // namespace cacheshim::cli
