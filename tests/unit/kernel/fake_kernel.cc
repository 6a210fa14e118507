// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernel/fake_kernel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace cacheshim {
namespace {

constexpr std::chrono::seconds kDeadline{20};
constexpr std::size_t kMostBytes = std::size_t{2} << 20;
// The same values as in the kernel (FUSE_REQ_ID_STEP, FUSE_INT_REQ_BIT).
constexpr std::uint64_t kNumberStep = 2;
constexpr std::uint64_t kOfInterrupt = 1;

}  // namespace

FakeKernel::FakeKernel() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  kernel_ = UniqueFd(ends[0]);
  device_ = UniqueFd(ends[1]);
  speak_as(::getuid(), ::getgid(), 0);
  collector_ = std::thread([this] { collect(); });
}

FakeKernel::~FakeKernel() {
  device_.reset();
  collector_.join();
}

void FakeKernel::speak_as(uid_t uid, gid_t gid, pid_t pid) {
  const std::lock_guard lock(mutex_);
  header_.uid = uid;
  header_.gid = gid;
  header_.pid = static_cast<std::uint32_t>(pid);
}

std::uint64_t FakeKernel::send(std::uint32_t opcode, std::uint64_t node, std::string_view body) {
  fuse_in_header header{};
  {
    const std::lock_guard lock(mutex_);
    header = header_;
    header.unique = last_ += kNumberStep;
  }
  header.len = static_cast<std::uint32_t>(sizeof header + body.size());
  header.opcode = opcode;
  header.nodeid = node;
  send_bytes(bytes_of(header).append(body));
  return header.unique;
}

void FakeKernel::send_bytes(std::string_view bytes) {
  EXPECT_EQ(::send(kernel_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

void FakeKernel::interrupt(std::uint64_t number) {
  const fuse_interrupt_in body{number};
  fuse_in_header header{};
  header.len = sizeof header + sizeof body;
  header.opcode = FUSE_INTERRUPT;
  header.unique = number | kOfInterrupt;
  send_bytes(bytes_of(header) + bytes_of(body));
}

std::uint64_t FakeKernel::next_number() const {
  const std::lock_guard lock(mutex_);
  return last_ + kNumberStep;
}

FuseReply FakeKernel::wait_for(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  const bool has_come = news_.wait_for(lock, kDeadline, [&] { return replies_.contains(number); });
  return has_come ? replies_[number].front() : FuseReply{ETIME, ""};
}

int FakeKernel::init() {
  fuse_init_in body{};
  body.major = FUSE_KERNEL_VERSION;
  body.minor = FUSE_KERNEL_MINOR_VERSION;
  body.max_readahead = 128 * 1024;
  body.flags = FUSE_ASYNC_READ | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_ATOMIC_O_TRUNC |
               FUSE_BIG_WRITES | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES;
  return call(FUSE_INIT, 0, bytes_of(body)).error;
}

std::size_t FakeKernel::replies_to(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = replies_.find(number);
  return found == replies_.end() ? 0 : found->second.size();
}

bool FakeKernel::wait_for_notification(
    const std::function<bool(const FuseNotification&)>& is_wanted) {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, kDeadline, [&] {
    return std::any_of(notifications_.begin(), notifications_.end(), is_wanted);
  });
}

void FakeKernel::disconnect() { (void)::shutdown(kernel_.get(), SHUT_WR); }

// Collects replies until the daemon closes its end. A spliced reply may arrive in several messages.
void FakeKernel::collect() {
  const auto buffer = std::make_unique<char[]>(kMostBytes);
  std::string message;
  for (;;) {
    const ssize_t size = ::recv(kernel_.get(), buffer.get(), kMostBytes, 0);
    if (size == -1 && errno == EINTR) continue;
    if (size <= 0) return;
    message.append(buffer.get(), static_cast<std::size_t>(size));
    fuse_out_header header{};
    if (message.size() < sizeof header) continue;
    std::memcpy(&header, message.data(), sizeof header);
    if (message.size() < header.len) continue;
    note(message);
    message.clear();
  }
}

void FakeKernel::note(const std::string& message) {
  fuse_out_header header{};
  std::memcpy(&header, message.data(), sizeof header);
  std::string body = message.substr(sizeof header);
  {
    const std::lock_guard lock(mutex_);
    if (header.unique == 0) {
      notifications_.push_back({header.error, std::move(body)});
    } else {
      replies_[header.unique].push_back({-header.error, std::move(body)});
    }
  }
  news_.notify_all();
}

}  // namespace cacheshim
