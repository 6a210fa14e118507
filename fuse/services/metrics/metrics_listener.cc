// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/metrics/metrics_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/result.h"
#include "metrics/wire.h"

namespace cacheshim {
namespace {

using metrics::Serial;

constexpr std::chrono::seconds kShortestPause{5};
constexpr std::chrono::seconds kLongestPause{60};
constexpr std::chrono::seconds kTextLifetime{1};
constexpr unsigned kNobody = 65534;
constexpr int kBacklog = 16;
constexpr std::uint64_t kHelperSocket = 1;  // the id of the watched descriptor

socklen_t fill_address(const metrics::Settings& settings, sockaddr_storage& storage) {
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&storage);
  if (::inet_pton(AF_INET, settings.address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(settings.port);
    return sizeof *v4;
  }
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET6, settings.address.c_str(), &v6->sin6_addr) != 1) return 0;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(settings.port);
  return sizeof *v6;
}

Result<UniqueFd> listen_on(const metrics::Settings& settings) {
  sockaddr_storage address{};
  const socklen_t size = fill_address(settings, address);
  if (size == 0) return Errno(EINVAL);
  UniqueFd socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Errno::last();
  const int on = 1;
  // Otherwise, connections that a former daemon has closed would keep the address in use for a minute.
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return Errno::last();
  }
  return socket;
}

}  // namespace

MetricsListener::MetricsListener(EventLoop& loop, Options options)
    : options_(std::move(options)),
      task_(loop, "serving metrics", [this](const auto&) { return tend(); }) {}

void MetricsListener::stop() {
  task_.stop();
  socket_.reset();
  helper_.reset();
  listener_.reset();
}

std::string MetricsListener::address() const {
  const metrics::Settings& settings = options_.settings;
  const bool is_v6 = settings.address.find(':') != std::string::npos;
  const std::string host = is_v6 ? '[' + settings.address + ']' : settings.address;
  return fmt::format("{}:{}", host, settings.port);
}

std::string MetricsListener::problem() const {
  const MutexLock lock(mutex_);
  return problem_;
}

void MetricsListener::note(const std::string& problem) {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(problem_, problem) == problem) return;
  }
  if (problem.empty()) {
    spdlog::info("serving metrics on http://{}/metrics", address());
  } else {
    spdlog::warn("cannot serve metrics on {}: {}; trying again at intervals of up to {} s",
                 address(), problem, kLongestPause.count());
  }
}

// Returns why the helper could not be started; "" if it runs.
std::string MetricsListener::begin() {
  auto listening = listen_on(options_.settings);
  if (!listening) return std::strerror(listening.error().code());
  listener_ = *std::move(listening);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return std::strerror(errno);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  auto started =
      helper::Process::start({.program = options_.helper,
                              .arguments = {fmt::to_string(kNobody), fmt::to_string(kNobody)},
                              .environment = {"LC_ALL=C.UTF-8"},
                              .descriptors = {theirs.get(), listener_.get()}});
  if (!started) {
    return fmt::format("cannot start '{}': {}", options_.helper,
                       std::strerror(started.error().code()));
  }
  helper_ = *std::move(started);
  socket_ = std::move(ours);
  return "";
}

const std::string& MetricsListener::recent_text() {
  const auto now = EventLoop::Clock::now();
  if (now - text_made_at_ >= kTextLifetime) {
    text_ = options_.text();
    text_made_at_ = now;
    if (text_.size() > metrics::kMostTextBytes) text_.clear();
  }
  return text_;
}

// Answers one request, so that a helper that sends many requests does not delay the loop's other tasks. Returns false
// if the helper has ended.
bool MetricsListener::answer_one() {
  Serial serial = 0;
  const ssize_t size = ::recv(socket_.get(), &serial, sizeof serial, MSG_DONTWAIT);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size != ssize_t{sizeof serial}) return false;
  if (serial == metrics::kReady) {
    note("");
    return true;
  }
  const std::string& text = recent_text();
  std::array<iovec, 2> parts{iovec{&serial, sizeof serial},
                             iovec{const_cast<char*>(text.data()), text.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  // A helper that does not read its replies gets no more of them.
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent >= 0 || errno == EAGAIN || errno == EMSGSIZE;
}

// Also closes the listening socket, because a helper could have shut it down.
EventLoop::Clock::time_point MetricsListener::retry_later(const std::string& problem) {
  socket_.reset();
  helper_.reset();
  listener_.reset();
  note(problem);
  const auto now = EventLoop::Clock::now();
  const bool has_served_long =
      begun_at_ != EventLoop::Clock::time_point() && now - begun_at_ > kLongestPause;
  begun_at_ = {};
  pause_ = has_served_long ? kShortestPause : std::clamp(2 * pause_, kShortestPause, kLongestPause);
  return now + pause_;
}

EventLoop::Clock::time_point MetricsListener::tend() {
  if (!socket_) {
    if (const std::string problem = begin(); !problem.empty()) return retry_later(problem);
    begun_at_ = EventLoop::Clock::now();
  } else if (!answer_one()) {
    return retry_later("cacheshim-metrics has ended");
  }
  if (!task_.watch(socket_.get(), kHelperSocket))
    return retry_later("no room for a watch (fs.epoll.max_user_watches)");
  return EventLoop::kNever;
}

}  // namespace cacheshim
