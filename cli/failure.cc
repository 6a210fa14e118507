// SPDX-License-Identifier: Apache-2.0
#include "cli/failure.h"

#include <fmt/format.h>
#include <unistd.h>

#include "common/printable_text.h"

namespace cacheshim::cli {

void print_line(const std::string& message) {
  // One write, so that lines of several processes do not interleave.
  const std::string line = fmt::format("cacheshim: {}\n", printable(message));
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // stderr is closed
}

}  // namespace cacheshim::cli
