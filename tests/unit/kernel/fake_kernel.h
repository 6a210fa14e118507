// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/fuse.h>
#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/unique_fd.h"

namespace cacheshim {

template <class Body>
std::string bytes_of(const Body& body) {
  return {reinterpret_cast<const char*>(&body), sizeof body};
}

// Returns the name with its NUL, as in a request.
inline std::string name_bytes(const std::string& name) { return {name.c_str(), name.size() + 1}; }

struct FuseReply {
  int error = 0;  // an errno value
  std::string body;

  template <class Body>
  Body as(std::size_t offset = 0) const {
    Body copied{};
    if (offset + sizeof copied <= body.size())
      std::memcpy(&copied, body.data() + offset, sizeof copied);
    return copied;
  }
};

struct FuseNotification {
  int code = 0;  // FUSE_NOTIFY_…
  std::string body;
};

// Simulates the kernel's side of a FUSE connection over a socket, as EdenFS's FakeFuse does. The
// daemon's end replaces /dev/fuse. There is no cache and no permission check: each request of a
// test is one request to the daemon. A thread collects the replies, so that the daemon never waits
// for a reader.
//
// Unlike /dev/fuse, the socket accepts replies to requests that do not exist; replies_to() counts those replies too. A
// reply is lost if the socket is full, so a test should have at most a few dozen pending requests. Thread-safe.
class FakeKernel {
 public:
  FakeKernel();
  ~FakeKernel();  // requires: the daemon has closed its end
  FakeKernel(const FakeKernel&) = delete;
  FakeKernel& operator=(const FakeKernel&) = delete;

  // The daemon's end of the connection. Call once.
  UniqueFd take_device() { return std::move(device_); }
  // Sets the caller of all following requests. Initially, the caller has this process's uid and gid, and pid 0, as if
  // it were outside the daemon's PID namespace. Because of pid 0, the daemon does not read the caller's files in /proc.
  void speak_as(uid_t uid, gid_t gid, pid_t pid);
  // Sends a request and returns its number. `body` follows the header.
  std::uint64_t send(std::uint32_t opcode, std::uint64_t node, std::string_view body);
  // Sends these bytes as one message.
  void send_bytes(std::string_view bytes);
  // Waits for the reply. If there is none by the deadline, returns a reply with the error ETIME.
  FuseReply wait_for(std::uint64_t number);
  FuseReply call(std::uint32_t opcode, std::uint64_t node, std::string_view body) {
    return wait_for(send(opcode, node, body));
  }
  // Sends FUSE_INTERRUPT for a request. The daemon need not reply to it.
  void interrupt(std::uint64_t number);
  // Returns the number of the next request.
  std::uint64_t next_number() const;
  // Sends FUSE_INIT, which comes before all other requests. Returns the error of the reply.
  int init();
  // Returns the number of replies so far to this request.
  std::size_t replies_to(std::uint64_t number) const;
  // Waits for a notification. Returns false if there is none by the deadline.
  bool wait_for_notification(const std::function<bool(const FuseNotification&)>& is_wanted);
  // Simulates an unmount: the daemon receives no more requests. Its replies still arrive.
  void disconnect();

 private:
  void collect();
  void note(const std::string& message);

  UniqueFd kernel_;
  UniqueFd device_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  fuse_in_header header_{};
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, std::vector<FuseReply>> replies_;
  std::vector<FuseNotification> notifications_;
  std::thread collector_;
};

}  // namespace cacheshim
