// SPDX-License-Identifier: Apache-2.0
#include "cli/mounting/daemon_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "common/printable_text.h"
#include "common/unique_fd.h"

namespace cacheshim::cli {
namespace {

constexpr std::size_t kLogBytes = 4 << 20;
constexpr std::size_t kLogFiles = 2;  // "log.1" and so on, besides "log"
constexpr mode_t kLogMode = 0600;

// Formats %* as the message, made printable.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string text = printable({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

void log_to(spdlog::sink_ptr sink, spdlog::level::level_enum level, const char* pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').set_pattern(pattern);
  auto logger = std::make_shared<spdlog::logger>("cacheshim", std::move(sink));
  logger->set_formatter(std::move(formatter));
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

// Denies other users access to the log of an earlier daemon.
void close_to_others(const std::string& path) {
  (void)::chmod(path.c_str(), kLogMode);  // fails if there is no earlier log
}

// Creates the file with kLogMode, because the daemon's umask is 0, and spdlog would create a file that every user may
// write.
void create_closed(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLogMode));
  close_to_others(path);  // if the file cannot be created, spdlog reports that
}

}  // namespace

void log_to_stderr(spdlog::level::level_enum level) {
  log_to(std::make_shared<spdlog::sinks::stderr_sink_mt>(), level, "cacheshim: %l: %*");
}

void log_to_file(const std::string& run_dir) {
  if (run_dir.empty()) return spdlog::set_level(spdlog::level::off);
  const std::string path = run_dir + "/log";
  for (std::size_t i = 1; i <= kLogFiles; ++i) close_to_others(fmt::format("{}.{}", path, i));
  try {
    spdlog::file_event_handlers handlers;
    handlers.before_open = create_closed;
    log_to(std::make_shared<spdlog::sinks::rotating_file_sink_mt>(
               path, kLogBytes, kLogFiles, /*rotate_on_open=*/false, handlers),
           spdlog::level::info, "[%Y-%m-%d %H:%M:%S.%e] [%n] [%l] %*");
  } catch (const spdlog::spdlog_ex& error) {
    spdlog::warn("cannot log to '{}': {}; going on without a log", path, error.what());
    spdlog::set_level(spdlog::level::off);
  }
}

}  // namespace cacheshim::cli
