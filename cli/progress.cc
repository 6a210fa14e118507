// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "common/printable_text.h"

namespace cacheshim::cli {
namespace {

constexpr std::chrono::seconds kSilence{1};
constexpr std::chrono::milliseconds kTerminalPeriod{200};
constexpr std::chrono::seconds kLinePeriod{10};
constexpr std::string_view kClearLine = "\r\033[K";

void write_to_stderr(std::string_view text) {
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // stderr is closed
}

std::string describe(std::string_view from_daemon, std::uint64_t done, std::uint64_t total) {
  const std::string what = printable(from_daemon);
  if (total > 0) return fmt::format("cacheshim: {}: {} of {}", what, done, total);
  if (done > 0) return fmt::format("cacheshim: {}: {}", what, done);
  return fmt::format("cacheshim: {} …", what);
}

}  // namespace

Progress::Progress() : Progress(write_to_stderr, ::isatty(STDERR_FILENO) == 1, Clock::now()) {}

Progress::Progress(Write write, bool terminal, Clock::time_point start)
    : write_(std::move(write)), terminal_(terminal), next_(start + kSilence) {}

void Progress::update(std::string_view what, std::uint64_t done, std::uint64_t total,
                      Clock::time_point now) {
  if (now < next_) return;
  const std::string text = describe(what, done, total);
  if (terminal_) {
    next_ = now + kTerminalPeriod;
    write_(fmt::format("{}{}", kClearLine, text));
  } else {
    next_ = now + kLinePeriod;
    write_(text + "\n");
  }
  shown_ = true;
}

void Progress::finish() {
  if (shown_ && terminal_) write_(kClearLine);
  shown_ = false;
}

}  // namespace cacheshim::cli
