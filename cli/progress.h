// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace cacheshim::cli {

// Shows the progress of a long operation: nothing in its first second, then one line that is
// rewritten in place on a terminal, or a new line every ten seconds elsewhere.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  using Write = std::function<void(std::string_view)>;

  Progress();  // on stderr
  Progress(Write write, bool terminal, Clock::time_point start);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  // `total` 0: unknown; `done` also 0: no numbers are shown.
  void update(std::string_view what, std::uint64_t done, std::uint64_t total,
              Clock::time_point now = Clock::now());
  // Clears the line on the terminal.
  void finish();

 private:
  Write write_;
  bool terminal_;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace cacheshim::cli
