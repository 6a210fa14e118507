// SPDX-License-Identifier: Apache-2.0
#include "remote/helper_process.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "remote/wire.h"

namespace cacheshim::remote {
namespace {

constexpr time_t kStartSeconds = 5;

// Limits how long receive_message() waits. 0: no limit.
void set_deadline(int socket, time_t seconds) {
  const timeval time{seconds, 0};
  (void)::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

// The helper gets no variable of this process except those by which OpenSSL finds certificates.
std::vector<std::string> environment_of_helper() {
  std::vector<std::string> environment{"LC_ALL=C.UTF-8"};
  for (const char* name : {"SSL_CERT_FILE", "SSL_CERT_DIR"}) {
    if (const char* const value = ::getenv(name))
      environment.push_back(fmt::format("{}={}", name, value));
  }
  return environment;
}

RemoteError cannot_start(const std::string& program, int code) {
  return {RemoteError::Kind::kUnavailable,
          fmt::format("cannot start '{}': {}", program, std::strerror(code))};
}

}  // namespace

RemoteError error_of(const nlohmann::json& reply) {
  const std::string kind = reply.value("error", "");
  RemoteError error{RemoteError::Kind::kUnavailable, kind.empty() ? "" : reply.value("text", kind)};
  if (kind == "full") error.kind = RemoteError::Kind::kFull;
  if (kind == "refused") error.kind = RemoteError::Kind::kRefused;
  return error;
}

std::variant<HelperProcess, RemoteError> HelperProcess::start(const Options& options) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return cannot_start(options.program, errno);
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  auto process = helper::Process::start(
      {.program = options.program,
       .arguments = {fmt::to_string(options.uid), fmt::to_string(options.gid)},
       .environment = environment_of_helper(),
       .descriptors = {theirs.get()}});
  if (!process) return cannot_start(options.program, process.error().code());
  HelperProcess helper(*std::move(process), std::move(ours));
  const Status sent = send_message(helper.socket(), {{"op", "open"},
                                                     {"urls", options.urls},
                                                     {"secrets", options.secrets},
                                                     {"timeout_ms", options.timeout.count()}});
  set_deadline(helper.socket(), kStartSeconds);
  const auto reply = sent ? receive_message(helper.socket()) : sent.error();
  set_deadline(helper.socket(), 0);
  if (!reply) {
    return RemoteError{RemoteError::Kind::kUnavailable,
                       fmt::format("'{}' ended at its start", options.program)};
  }
  if (RemoteError error = error_of(reply->json); !error.text.empty()) return error;
  helper.has_leases_ = reply->json.value("leases", false);
  return helper;
}

}  // namespace cacheshim::remote
