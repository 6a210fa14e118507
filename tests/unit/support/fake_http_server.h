// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "tests/unit/support/listener.h"

namespace cacheshim {

// An HTTP server that gives prepared replies, one to each connection. The last reply repeats. If `pause_per_byte` is
// set, the server pauses after each byte of a reply. The destructor ends the server's thread. Thread-safe. The
// constructor throws std::runtime_error if it cannot listen.
class FakeHttpServer {
 public:
  explicit FakeHttpServer(std::vector<std::string> replies,
                          std::chrono::milliseconds pause_per_byte = {})
      : replies_(std::move(replies)),
        pause_per_byte_(pause_per_byte),
        thread_([this] { serve(); }) {}
  ~FakeHttpServer() {
    is_ending_ = true;
    (void)::shutdown(listener_.socket(), SHUT_RDWR);  // accept4(2) then fails
    thread_.join();
  }
  FakeHttpServer(const FakeHttpServer&) = delete;
  FakeHttpServer& operator=(const FakeHttpServer&) = delete;

  std::string endpoint() const { return fmt::format("http://127.0.0.1:{}", listener_.port()); }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    for (std::size_t count = 0;; ++count) {
      const UniqueFd connection(::accept4(listener_.socket(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) return;
      read_request(connection.get());
      send_reply(connection.get(), replies_[std::min(count, replies_.size() - 1)]);
    }
  }
  void read_request(int connection) {
    const timeval patience{10, 0};
    (void)::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string request;
    std::size_t wanted = std::string::npos;  // the size of the head and the body
    while (request.size() < wanted) {
      std::array<char, 4096> buffer{};
      const ssize_t count = ::recv(connection, buffer.data(), buffer.size(), 0);
      if (count <= 0) break;
      request.append(buffer.data(), static_cast<std::size_t>(count));
      const std::size_t head = request.find("\r\n\r\n");
      if (head == request.npos) continue;
      const std::size_t length = request.find("Content-Length: ");
      wanted = head + 4 + (length == request.npos ? 0 : std::stoul(request.substr(length + 16)));
    }
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  void send_reply(int connection, std::string_view reply) const {
    while (!reply.empty() && !is_ending_) {
      const std::size_t size = pause_per_byte_.count() > 0 ? 1 : reply.size();
      const ssize_t count = ::send(connection, reply.data(), size, MSG_NOSIGNAL);
      if (count <= 0) return;
      reply.remove_prefix(static_cast<std::size_t>(count));
      std::this_thread::sleep_for(pause_per_byte_);
    }
  }

  Listener listener_;
  std::vector<std::string> replies_;
  std::chrono::milliseconds pause_per_byte_;
  std::atomic<bool> is_ending_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

// Returns a reply for FakeHttpServer. Each line of `headers` ends with "\r\n".
inline std::string http(int status, std::string_view body = "", std::string_view headers = "") {
  return fmt::format("HTTP/1.1 {} Status\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}",
                     status, body.size(), headers, body);
}

}  // namespace cacheshim
