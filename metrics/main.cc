// SPDX-License-Identifier: Apache-2.0
// The program `cacheshim-metrics`: answers Prometheus's HTTP requests with the metrics that it requests from the daemon
// (wire.h). The daemon starts it, so that no HTTP request reaches a process that has privileges. It exits when the
// daemon closes the socket.
//
//   cacheshim-metrics UID GID

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/exit_codes.h"
#include "helper/privileges.h"
#include "metrics/wire.h"

namespace cacheshim::metrics {
namespace {

constexpr int kAnswerTimeoutMs = 5000;  // half of Prometheus's default scrape_timeout
constexpr unsigned kMostConnections = 32;
constexpr unsigned kConnectionTimeoutSeconds = 10;
// The most memory for the header of a request.
constexpr std::size_t kConnectionBytes = 16384;

bool becomes_readable() {
  pollfd socket{kDaemonSocket, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&socket, 1, kAnswerTimeoutMs);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool send_number(Serial number) {
  return ::send(kDaemonSocket, &number, sizeof number, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         ssize_t{sizeof number};
}

// Returns the daemon's metrics, or nothing if it does not send them in time. Call from one thread only.
std::optional<std::string> request_metrics() {
  static Serial last = kReady;
  const Serial serial = ++last;
  if (!send_number(serial)) return std::nullopt;
  std::string reply(sizeof serial + kMostTextBytes, '\0');
  while (becomes_readable()) {
    const ssize_t size = ::recv(kDaemonSocket, reply.data(), reply.size(), MSG_DONTWAIT);
    if (size < ssize_t{sizeof serial}) return std::nullopt;
    Serial answered = 0;
    std::memcpy(&answered, reply.data(), sizeof answered);
    if (answered != serial)
      continue;  // the reply to a request for which an earlier call gave up waiting
    return reply.substr(sizeof serial, static_cast<std::size_t>(size) - sizeof serial);
  }
  return std::nullopt;
}

MHD_Result reply_with(MHD_Connection* connection, unsigned status, const std::string& text,
                      const char* type) {
  MHD_Response* const response = MHD_create_response_from_buffer(
      text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;  // closes the connection
  (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  const MHD_Result queued = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return queued;
}

// libmicrohttpd calls this once after the header of a request, and again at the request's end.
MHD_Result answer(void*, MHD_Connection* connection, const char* url, const char* method,
                  const char*, const char*, std::size_t* upload_bytes, void** state) {
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  static int has_header;
  const std::string_view wanted = method;
  if (wanted != MHD_HTTP_METHOD_GET && wanted != MHD_HTTP_METHOD_HEAD) {
    return reply_with(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n", kPlain);
  }
  if (std::exchange(*state, &has_header) != &has_header) return MHD_YES;
  if (*upload_bytes != 0) return MHD_NO;
  if (std::string_view(url) != "/metrics") {
    return reply_with(connection, MHD_HTTP_NOT_FOUND, "the metrics are at /metrics\n", kPlain);
  }
  const auto metrics = request_metrics();
  if (!metrics) {
    return reply_with(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "the daemon does not answer\n",
                      kPlain);
  }
  if (metrics->empty()) {
    return reply_with(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "the metrics are too long\n",
                      kPlain);
  }
  return reply_with(connection, MHD_HTTP_OK, *metrics, "text/plain; version=0.0.4; charset=utf-8");
}

void wait_until_the_daemon_exits() {
  pollfd socket{kDaemonSocket, 0, 0};  // reports only that the other end is closed
  while (::poll(&socket, 1, -1) < 0 && errno == EINTR) continue;
}

int serve() {
  MHD_Daemon* const server =
      MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, nullptr, nullptr, &answer, nullptr,
                       MHD_OPTION_LISTEN_SOCKET, kListeningSocket, MHD_OPTION_CONNECTION_LIMIT,
                       kMostConnections, MHD_OPTION_CONNECTION_TIMEOUT, kConnectionTimeoutSeconds,
                       MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, MHD_OPTION_END);
  if (server == nullptr) {
    std::fputs("cacheshim-metrics: cannot serve HTTP requests\n", stderr);
    return kExitUnavailable;
  }
  (void)send_number(kReady);  // fails only if the daemon has exited
  wait_until_the_daemon_exits();
  MHD_stop_daemon(server);
  return kExitSuccess;
}

}  // namespace
}  // namespace cacheshim::metrics

int main(int argc, char** argv) {
  if (const auto failed = cacheshim::helper::give_up_privileges(argc, argv, "cacheshim-metrics",
                                                                "the daemon starts")) {
    return *failed;
  }
  (void)::signal(SIGPIPE, SIG_IGN);
  return cacheshim::metrics::serve();
}
