// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/request_source.h"

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>

#include "fuse/transport/receive_loop.h"
#include "fuse/transport/wire.h"
#include "tests/unit/kernel/fake_kernel.h"

namespace cacheshim {
namespace {

// A FUSE_STATFS request stays in progress until the test releases it. libfuse refuses all other requests.
struct Statfs {
  std::latch begun{1};
  std::latch released{1};
  std::atomic<bool> is_handled{false};
};

void statfs(fuse_req_t req, fuse_ino_t /*node*/) {
  auto& statfs = *static_cast<Statfs*>(fuse_req_userdata(req));
  statfs.begun.count_down();
  statfs.released.wait();
  statfs.is_handled = true;
  (void)fuse_reply_err(req, EDQUOT);
}

ssize_t read_request(int fd, void* buffer, std::size_t size, void* /*userdata*/) {
  return ::read(fd, buffer, size);
}

// Tests the contract of RequestSource with a receive loop that reads from a socket instead of
// /dev/fuse.
class ReceiveLoopTest : public ::testing::Test {
 protected:
  ReceiveLoopTest() {
    operations_.statfs = statfs;
    std::string program = "test";
    char* argv[] = {program.data(), nullptr};
    fuse_args args = FUSE_ARGS_INIT(1, argv);
    session_ = fuse_session_new(&args, &operations_, sizeof operations_, &statfs_);
    fuse_opt_free_args(&args);
    fuse_custom_io io{};
    io.writev = wire::send;
    io.read = read_request;
    EXPECT_EQ(fuse_session_custom_io(session_, &io, kernel_.take_device().release()), 0);
    sources_.push_back(std::make_unique<ReceiveLoop>(session_, 2, [this] { ended_.release(); }));
    wire::use_sources(sources_);
  }
  ~ReceiveLoopTest() override {
    wire::use_sources({});
    sources_.clear();
    fuse_session_destroy(session_);  // closes the socket
  }

  RequestSource& source() { return *sources_.front(); }
  // Sends a reply without a body, or a notification if `number` is 0.
  std::optional<ssize_t> reply(std::uint64_t number, int error) {
    fuse_out_header header{sizeof header, error, number};
    const iovec part{&header, sizeof header};
    return source().reply(&part, 1);
  }

  FakeKernel kernel_;
  Statfs statfs_;
  fuse_lowlevel_ops operations_{};
  fuse_session* session_ = nullptr;
  std::counting_semaphore<> ended_{0};
  RequestSources sources_;
};

TEST_F(ReceiveLoopTest, NeedsNoAgreementAndHasNoReplySpace) {
  EXPECT_EQ(source().init_flags2(), 0U);
  EXPECT_EQ(source().reply_space(1), nullptr);
}

TEST_F(ReceiveLoopTest, ReceivesRequestsThatCameBeforeItsStart) {
  const std::uint64_t number =
      kernel_.send(FUSE_GETATTR, FUSE_ROOT_ID, bytes_of(fuse_getattr_in{}));
  source().start();
  EXPECT_EQ(kernel_.wait_for(number).error, EIO) << "FUSE_INIT must come first";
  EXPECT_EQ(kernel_.init(), 0);
  EXPECT_EQ(kernel_.call(FUSE_GETATTR, FUSE_ROOT_ID, bytes_of(fuse_getattr_in{})).error, ENOSYS);
}

TEST_F(ReceiveLoopTest, SendsRepliesAndNotificationsAfterItsStop) {
  source().start();
  source().stop();
  const std::uint64_t unread = kernel_.send(FUSE_STATFS, FUSE_ROOT_ID, "");
  const std::uint64_t answered = kernel_.next_number();
  EXPECT_EQ(reply(0, FUSE_NOTIFY_POLL), sizeof(fuse_out_header));
  EXPECT_EQ(reply(answered, -EDQUOT), sizeof(fuse_out_header));
  EXPECT_EQ(kernel_.wait_for(answered).error, EDQUOT);
  EXPECT_TRUE(kernel_.wait_for_notification(
      [](const FuseNotification& news) { return news.code == FUSE_NOTIFY_POLL; }));
  EXPECT_EQ(kernel_.replies_to(unread), 0U);
  source().stop();
}

TEST_F(ReceiveLoopTest, StopWaitsForTheRequestInProgress) {
  source().start();
  EXPECT_EQ(kernel_.init(), 0);
  const std::uint64_t number = kernel_.send(FUSE_STATFS, FUSE_ROOT_ID, "");
  statfs_.begun.wait();
  auto stopped = std::async(std::launch::async, [this] { source().stop(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  statfs_.released.count_down();
  stopped.get();
  EXPECT_TRUE(statfs_.is_handled);
  EXPECT_EQ(kernel_.wait_for(number).error, EDQUOT);
}

TEST_F(ReceiveLoopTest, ReportsTheUnmountOnce) {
  source().start();
  kernel_.disconnect();
  EXPECT_TRUE(ended_.try_acquire_for(std::chrono::seconds(20)));
  source().stop();
  EXPECT_FALSE(ended_.try_acquire());
}

TEST_F(ReceiveLoopTest, NeedNotBeStarted) {
  source().stop();
  EXPECT_FALSE(ended_.try_acquire()) << "a stop is no unmount";
}

}  // namespace
}  // namespace cacheshim
