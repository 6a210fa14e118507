// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace cacheshim::cli {

// Shows the progress of a long operation. Prints nothing in the first second. Then, on a terminal,
// rewrites one line in place; elsewhere, prints a new line every ten seconds.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  using Write = std::function<void(std::string_view)>;

  Progress();  // prints to stderr
  Progress(Write write, bool terminal, Clock::time_point start);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  // `total` is 0 if it is unknown. If `done` is 0 as well, no numbers are shown.
  void update(std::string_view what, std::uint64_t done, std::uint64_t total,
              Clock::time_point now = Clock::now());
  // Clears the line, if it is on a terminal.
  void finish();

 private:
  Write write_;
  bool terminal_;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace cacheshim::cli
