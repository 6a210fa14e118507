// SPDX-License-Identifier: Apache-2.0
#include "cli/control_client.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "cli/failure.h"
#include "cli/mounting/dead_mount.h"
#include "cli/paths.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "common/exit_codes.h"
#include "common/names.h"
#include "common/result.h"
#include "store/profiles/profile_json.h"
#include "store/sys/json_text.h"

namespace cacheshim::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kReadSize = std::size_t{1} << 20;
// Larger than any answer of an honest daemon. Any user may run a daemon, so there must be a limit.
constexpr JsonLimits kAnswerLimits{std::size_t{1} << 30, 32};

std::string reason(Errno error) { return std::generic_category().message(error.code()); }

[[noreturn]] void fail_unavailable(const std::string& mount, Errno error) {
  if (error == ENOENT || error == ENOTDIR) {
    throw Failure(kExitUnavailable, no_mount_text(mount));
  }
  if (error == ENOTCONN || error == ECONNABORTED) {
    throw Failure(kExitUnavailable, fmt::format("the daemon of the mount at '{}' is dead; {}", mount,
                                                dead_mount_advice(resolve_path(mount))));
  }
  throw Failure(kExitUnavailable,
                fmt::format("cannot talk to the daemon of '{}': {}", mount, reason(error)));
}

Result<UniqueFd> open_at(int directory, const char* name, int flags) {
  UniqueFd fd(::openat(directory, name, flags | O_CLOEXEC));
  if (!fd) return Errno::last();
  return fd;
}

// Calls read(2) once and appends the result to `text`. Returns false at the end of the file.
Result<bool> read_more(int fd, std::string& text) {
  const std::size_t before = text.size();
  text.resize(before + kReadSize);
  ssize_t count;
  do {
    count = ::read(fd, text.data() + before, kReadSize);
  } while (count < 0 && errno == EINTR);
  const Errno error = count < 0 ? Errno::last() : Errno(EIO);
  text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0) return error;
  return count > 0;
}

Status write_request(int fd, const std::string& text) {
  ssize_t count;
  do {
    count = ::write(fd, text.data(), text.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) return Errno::last();
  if (static_cast<std::size_t>(count) != text.size()) return Errno(EIO);
  return {};
}

void report_progress(const json& progress, const ControlClient::OnProgress& on_progress) {
  on_progress(text_of(progress, "what"), count_of(progress, "done"), count_of(progress, "total"));
}

void throw_if_refused(const json& line) {
  if (!line.is_object() || !line.contains("error")) return;
  const auto code = static_cast<int>(count_of(line, "exit"));
  throw Failure(code == 0 ? kExitFailed : code, text_of(line, "error"));
}

}  // namespace

ControlClient::ControlClient(const std::string& mount) : mount_(mount) {
  UniqueFd directory(::open((mount + "/" + std::string(kControlName)).c_str(),
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) fail_unavailable(mount, Errno::last());
  // Only a control directory has the file `version`: a store's directory of the same name does not.
  if (auto version = open_at(directory.get(), "version", O_RDONLY); !version) {
    fail_unavailable(mount, version.error());
  }
  directory_ = std::move(directory);
}

void ControlClient::exchange(const json& request,
                             const std::function<bool(std::string_view line)>& take) const {
  auto fd = open_at(directory_.get(), "control", O_RDWR);
  if (!fd) fail_unavailable(mount_, fd.error());
  const Status written = write_request(fd->get(), dump_json(request));
  if (written.failed_with(EAGAIN)) {
    throw Failure(kExitFailed, fmt::format("the daemon of '{}' already handles as many requests of this user as "
                                           "max_requests permits; nothing was done",
                                           mount_));
  }
  if (!written) {
    fail_unavailable(mount_, written.error());
  }
  std::string text;
  while (true) {
    const std::size_t seen = text.size();  // the text before this position has no newline
    const auto more = read_more(fd->get(), text);
    if (!more) fail_unavailable(mount_, more.error());
    for (auto end = text.find('\n', seen); end != text.npos; end = text.find('\n')) {
      if (take(std::string_view(text).substr(0, end))) return;
      text.erase(0, end + 1);
    }
    if (!*more) break;
  }
  throw Failure(kExitUnavailable,
                fmt::format("the daemon of '{}' broke off without an answer", mount_));
}

json ControlClient::request(const json& request, const OnProgress& on_progress) const {
  json answer;
  exchange(request, [&](std::string_view text) {
    json line = parse_json(text, kAnswerLimits);
    if (!line.is_object()) return false;
    if (const auto progress = line.find("progress"); progress != line.end()) {
      report_progress(*progress, on_progress);
      return false;
    }
    throw_if_refused(line);
    answer = std::move(line);
    return true;
  });
  return answer;
}

std::string ControlClient::request_text(const json& request) const {
  std::string answer;
  exchange(request, [&](std::string_view text) {
    if (text.starts_with(R"({"progress")")) return false;
    if (text.starts_with(R"({"error")")) throw_if_refused(parse_json(text, kAnswerLimits));
    answer = text;
    return true;
  });
  return answer;
}

json ControlClient::request(const json& request) const {
  Progress progress;
  return this->request(request, [&](std::string_view what, std::uint64_t done,
                                    std::uint64_t total) { progress.update(what, done, total); });
}

std::string ControlClient::read(const std::string& name) const {
  auto fd = open_at(directory_.get(), name.c_str(), O_RDONLY);
  if (!fd) fail_unavailable(mount_, fd.error());
  std::string text;
  while (true) {
    const auto more = read_more(fd->get(), text);
    if (!more) fail_unavailable(mount_, more.error());
    if (!*more) return text;
  }
}

std::vector<Profile> ControlClient::profiles() const {
  auto profiles = profiles_from_json(read("profiles"));
  if (profiles) return *std::move(profiles);
  throw Failure(kExitFailed,
                fmt::format("the daemon of '{}' gave profiles that cannot be read", mount_));
}

std::string started_job(const nlohmann::json& answer, const std::string& named) {
  const nlohmann::json job = answer.value("job", nlohmann::json::object());
  const std::string id = job.is_object() ? job.value("job", named) : named;
  const std::string why = answer.value("redirected", "");
  if (!why.empty()) print_line(fmt::format("{}; using job '{}' instead", why, id));
  return id;
}

}  // namespace cacheshim::cli
