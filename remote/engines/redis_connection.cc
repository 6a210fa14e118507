// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/redis_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "common/printable_text.h"

namespace cacheshim::remote::redis {
namespace {

using Kind = TierError::Kind;
using std::chrono::milliseconds;

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kMostErrorBytes = 300;  // of the server's text in a TierError

Kind kind_of(std::string_view error) {
  struct Row {
    std::string_view begin;
    Kind kind;
  };
  static constexpr Row kRows[] = {
      {"OOM ", Kind::kFull},
      {"MISCONF ", Kind::kFull},
      {"LOADING ", Kind::kUnavailable},
      {"BUSY ", Kind::kUnavailable},
      {"MASTERDOWN ", Kind::kUnavailable},
      {"CLUSTERDOWN ", Kind::kUnavailable},
      {"TRYAGAIN ", Kind::kUnavailable},
      {"NOREPLICAS ", Kind::kUnavailable},
      {"ERR max number of clients reached", Kind::kUnavailable},
  };
  // Before version 7, Redis reports a failed command of a script as
  // "ERR Error running script (call to f_DIGEST): @user_script:1: @user_script: 1: -OOM command not allowed".
  const std::size_t command_error = error.find(": -");
  if (error.starts_with("ERR Error running script") && command_error != std::string_view::npos)
    error.remove_prefix(command_error + 3);
  const auto row =
      std::ranges::find_if(kRows, [&](const Row& r) { return error.starts_with(r.begin); });
  return row == std::end(kRows) ? Kind::kRefused : row->kind;
}

std::string_view raw_text(const redisReply& reply) { return {reply.str, reply.len}; }

// Blocks until the socket has one of `events` or an error, and returns the socket's events, as poll(2) does. Returns 0
// after the deadline, even if the socket has events.
short poll_until(const UniqueFd& socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left <= milliseconds::zero()) return 0;
    pollfd entry{socket.get(), events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min(left, kLongestWait).count()));
    if (ready > 0) return entry.revents;
    if (ready == -1 && errno != EINTR) return POLLERR;
  }
}

[[noreturn]] void fail_at_deadline(const Call& call) {
  fail(call, Kind::kUnavailable, "the server did not answer in time");
}

}  // namespace

void fail(const Call& call, Kind kind, std::string_view why) {
  const std::string subject = call.key.empty() ? "" : fmt::format(" '{}'", printable(call.key));
  throw TierError(
      kind, fmt::format("cannot {}{} in Redis at {}: {}", call.action, subject, *call.server, why));
}

void fail(const Call& call, std::string_view what, Errno error) {
  fail(call, Kind::kUnavailable,
       fmt::format("{}: {}", what, std::system_category().message(error.code())));
}

bool has_error(const redisReply& reply, std::string_view code) {
  return reply.type == REDIS_REPLY_ERROR && raw_text(reply).starts_with(code);
}

void check(const Call& call, const redisReply& reply, std::string_view secret) {
  if (reply.type != REDIS_REPLY_ERROR) return;
  std::string_view text = raw_text(reply);
  const Kind kind = kind_of(text);
  if (!secret.empty() && text.find(secret) != std::string_view::npos)
    text = text.substr(0, text.find(' '));
  fail(call, kind, printable(text.substr(0, kMostErrorBytes)));
}

void fail_by_type(const Call& call) {
  fail(call, Kind::kUnavailable, "the server's reply does not have the expected type");
}
std::string_view text_of(const Call& call, const redisReply& reply) {
  check(call, reply);
  if (reply.type != REDIS_REPLY_STRING) fail_by_type(call);
  return raw_text(reply);
}
long long integer_of(const Call& call, const redisReply& reply) {
  check(call, reply);
  if (reply.type != REDIS_REPLY_INTEGER) fail_by_type(call);
  return reply.integer;
}
const redisReply& element_of(const Call& call, const redisReply& reply, std::size_t index) {
  check(call, reply);
  if (reply.type != REDIS_REPLY_ARRAY || index >= reply.elements) fail_by_type(call);
  return *reply.element[index];
}

void append_command(std::string& out, std::initializer_list<std::string_view> arguments) {
  std::size_t bytes = out.size() + 32;
  for (const std::string_view argument : arguments) bytes += argument.size() + 32;
  out.reserve(bytes);
  fmt::format_to(std::back_inserter(out), "*{}\r\n", arguments.size());
  for (const std::string_view argument : arguments) {
    fmt::format_to(std::back_inserter(out), "${}\r\n", argument.size());
    out.append(argument).append("\r\n");
  }
}

Result<UniqueFd> connect_socket(const sockaddr* address, socklen_t length,
                                Clock::time_point deadline) {
  UniqueFd socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return Errno::last();
  do {
    // socket(7): SO_SNDTIMEO also bounds connect(2). With O_NONBLOCK, a Unix socket would not wait for room in the
    // server's queue.
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now());
    if (left.count() <= 0) return Errno(ETIMEDOUT);  // 0 would be no timeout
    const timeval timeout{left.count() / 1'000'000, left.count() % 1'000'000};
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) == -1)
      return Errno::last();
    if (::connect(socket.get(), address, length) == 0) return socket;
  } while (errno == EINTR);
  return errno == EINPROGRESS || errno == EAGAIN ? Errno(ETIMEDOUT) : Errno::last();
}

Connection::Connection(UniqueFd socket)
    : socket_(std::move(socket)), reader_(::redisReaderCreate()) {
  if (!reader_) throw std::bad_alloc();
  // An array may be small in the protocol and large in memory ("*1000000000"): bound it.
  functions_ = *reader_->fn;
  functions_.createArray = [](const redisReadTask* task, auto elements) -> void* {
    if (task->parent != nullptr || static_cast<std::size_t>(elements) > kMostElements)
      return nullptr;
    return static_cast<redisReplyObjectFunctions*>(task->privdata)->createArray(task, elements);
  };
  reader_->privdata = std::exchange(reader_->fn, &functions_);
}

bool Connection::is_usable(bool may_have_input) const {
  pollfd entry{socket_.get(), POLLIN | POLLRDHUP, 0};
  const int ready = ::poll(&entry, 1, 0);
  return ready == 0 || (may_have_input && ready == 1 && entry.revents == POLLIN);
}

void Connection::send(const Call& call, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return;
    } else if (errno != EINTR && errno != EAGAIN) {
      fail(call, "cannot send", Errno::last());
    }
    if (!bytes.empty() && poll_until(socket_, POLLOUT, call.deadline) == 0) fail_at_deadline(call);
  }
}

Reply Connection::read(const Call& call, std::size_t most_bytes) {
  Reply reply = read_before(call, call.deadline, most_bytes);
  if (!reply) fail_at_deadline(call);
  return reply;
}

Reply Connection::read_before(const Call& call, Clock::time_point end, std::size_t most_bytes) {
  for (;;) {
    void* reply = nullptr;
    if (::redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
      fail(call, Kind::kUnavailable,
           fmt::format("the server's reply is not valid: {}", printable(reader_->errstr)));
    }
    if (reply != nullptr) {
      received_bytes_ = 0;
      return Reply(static_cast<redisReply*>(reply));
    }
    if (received_bytes_ > most_bytes)
      fail(call, Kind::kUnavailable,
           fmt::format("the server's reply exceeds {} bytes", most_bytes));
    if (poll_until(socket_, POLLIN, end) == 0) return nullptr;
    receive(call);
  }
}

void Connection::receive(const Call& call) {
  std::array<char, kReadBytes> bytes;
  const ssize_t length = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (length == 0) fail(call, Kind::kUnavailable, "the server has closed the connection");
  if (length == -1 && (errno == EINTR || errno == EAGAIN)) return;
  if (length == -1) fail(call, "cannot receive", Errno::last());
  received_bytes_ += static_cast<std::size_t>(length);
  // If memory runs out, redisReaderGetReply() reports it.
  (void)::redisReaderFeed(reader_.get(), bytes.data(), static_cast<std::size_t>(length));
}

}  // namespace cacheshim::remote::redis
