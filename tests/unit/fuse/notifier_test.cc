// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <future>

#include "common/unique_fd.h"
#include "fuse/services/freshness/notifier.h"

namespace cacheshim {
namespace {

// A socket pair replaces the kernel. The notifier blocks when the socket is full, as it does when
// the kernel has locked the directory.
class NotifierTest : public ::testing::Test {
 protected:
  NotifierTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    kernel_ = UniqueFd(ends[0]);
    daemon_ = UniqueFd(ends[1]);
  }

  Notifier::Notification receive() {
    char message[4096];
    const ssize_t size = ::recv(kernel_.get(), message, sizeof message, 0);
    fuse_out_header header{};
    fuse_notify_inval_entry_out body{};
    EXPECT_GT(size, static_cast<ssize_t>(sizeof header + sizeof body));
    std::memcpy(&header, message, sizeof header);
    std::memcpy(&body, message + sizeof header, sizeof body);
    EXPECT_EQ(header.len, size);
    EXPECT_EQ(header.error, FUSE_NOTIFY_INVAL_ENTRY);
    EXPECT_EQ(header.unique, 0U);
    return {body.parent, std::string(message + sizeof header + sizeof body, body.namelen)};
  }

  // Posts more invalidations for `directory` than fit into the socket, so that the notifier blocks
  // in one of them.
  void block_in(Notifier& notifier, Notifier::DirectoryId directory) {
    const std::vector<Notifier::Notification> many(kMany, {directory, std::string(200, 'n')});
    notifier.post(many, {}, [] {});
    (void)receive();  // the notifier has begun
  }

  // Like block_in(), but blocks the thread that makes the kernel forget names.
  void block_forgetting(Notifier& notifier) {
    notifier.forget(std::vector<Notifier::Notification>(kMany, to_forget(std::string(200, 'n'))));
    (void)receive();
  }

  // Receives all messages that are in the socket. Returns their number.
  std::size_t drain() {
    char message[4096];
    std::size_t count = 0;
    while (::recv(kernel_.get(), message, sizeof message, MSG_DONTWAIT) > 0) ++count;
    return count;
  }

  static Notifier::Notification to_forget(std::string name) {
    return {3, std::move(name), Notifier::Notification::Kind::kForget};
  }

  static constexpr std::size_t kMany = 4000;
  UniqueFd kernel_;
  UniqueFd daemon_;
  EventLoop loop_;  // not started
};

TEST_F(NotifierTest, InvalidatesEachNameAndThenAnswers) {
  std::promise<void> answered;
  Notifier notifier(daemon_.get(), loop_);
  notifier.post({{3, "a"}, {4, "bc"}}, {9}, [&] { answered.set_value(); });
  Notifier::Notification notification = receive();
  EXPECT_EQ(notification.directory, 3U);
  EXPECT_EQ(notification.name, "a");
  notification = receive();
  EXPECT_EQ(notification.directory, 4U);
  EXPECT_EQ(notification.name, "bc");
  answered.get_future().wait();
}

TEST_F(NotifierTest, AnswersAtOnceWithoutInvalidations) {
  bool answered = false;
  Notifier notifier(daemon_.get(), loop_);
  notifier.post({}, {1}, [&] { answered = true; });
  EXPECT_TRUE(answered);
}

TEST_F(NotifierTest, InvalidatesOnlyAttributesAtOnce) {
  Notifier notifier(daemon_.get(), loop_);
  notifier.invalidate_attributes({7, 8});
  for (const std::uint64_t node : {7U, 8U}) {
    struct {
      fuse_out_header header;
      fuse_notify_inval_inode_out body;
    } notification{};
    ASSERT_EQ(::recv(kernel_.get(), &notification, sizeof notification, MSG_DONTWAIT),
              ssize_t{sizeof notification});
    EXPECT_EQ(notification.header.error, FUSE_NOTIFY_INVAL_INODE);
    EXPECT_EQ(notification.body.ino, node);
    EXPECT_LT(notification.body.off, 0);  // invalidates no pages
  }
}

TEST_F(NotifierTest, InvalidatesOneNameWithoutTheOthers) {
  std::promise<bool> done;
  Notifier notifier(daemon_.get(), loop_);
  notifier.invalidate_name({3, "a"}, [&](bool is_released) { done.set_value(is_released); });
  EXPECT_EQ(receive().name, "a");
  EXPECT_TRUE(done.get_future().get());
}

TEST_F(NotifierTest, AnAnswerNeverWaitsForADirectoryThatItsRequestHolds) {
  bool answered = false;
  {
    Notifier notifier(daemon_.get(), loop_);
    block_in(notifier, 5);
    notifier.post({{6, "x"}}, {5}, [&] { answered = true; });
    EXPECT_TRUE(answered);  // otherwise the invalidation and the request would wait for each other
    kernel_.reset();        // unblocks the notifier
  }
}

TEST_F(NotifierTest, OtherAnswersWaitForTheirInvalidations) {
  bool answered = false;
  {
    Notifier notifier(daemon_.get(), loop_);
    block_in(notifier, 5);
    notifier.post({{6, "x"}}, {7}, [&] { answered = true; });
    EXPECT_FALSE(answered);
    kernel_.reset();
  }
  EXPECT_TRUE(answered);
}

TEST_F(NotifierTest, ForgetsNamesInTheirOrder) {
  Notifier notifier(daemon_.get(), loop_);
  notifier.forget({to_forget("a"), to_forget("b")});
  EXPECT_EQ(receive().name, "a");
  EXPECT_EQ(receive().name, "b");
}

TEST_F(NotifierTest, ForgetsNoFurtherNamesWhileItIsBlocked) {
  Notifier notifier(daemon_.get(), loop_);
  block_forgetting(notifier);
  notifier.forget({to_forget("further")});
  for (std::size_t left = kMany - 1; left > 0; --left) EXPECT_NE(receive().name, "further");
  notifier.stop();
  EXPECT_EQ(drain(), 0U);
}

TEST_F(NotifierTest, DropsTheNamesThatItHasNotForgottenWhenItStops) {
  Notifier notifier(daemon_.get(), loop_);
  block_forgetting(notifier);
  std::size_t received = 1;
  do {
    notifier.stop();
    received += drain();
  } while (notifier.is_blocked());
  EXPECT_LT(received, kMany);
}

TEST_F(NotifierTest, StopsAlthoughTheKernelBlocksForgetting) {
  bool was_blocked = false;
  while (!was_blocked) {  // when stop() is called, the thread may be between two names
    Notifier notifier(daemon_.get(), loop_);
    block_forgetting(notifier);
    notifier.stop();
    was_blocked = notifier.is_blocked();
    while (notifier.is_blocked()) {
      drain();
      notifier.stop();
    }
    drain();
  }
}

TEST_F(NotifierTest, InvalidatesNamesTwiceButNodesAndEpochsOnce) {
  Notifier notifier(daemon_.get(), loop_);
  using AnyKind = Notifier::Notification::Kind;
  notifier.post({{3, "a"}, {5, {}, AnyKind::kNode}, {0, {}, AnyKind::kEpoch}}, {}, [] {});
  EXPECT_EQ(receive().name, "a");
  fuse_out_header header{};
  char message[64];
  ASSERT_GE(::recv(kernel_.get(), message, sizeof message, 0), static_cast<ssize_t>(sizeof header));
  std::memcpy(&header, message, sizeof header);
  EXPECT_EQ(header.error, FUSE_NOTIFY_INVAL_INODE);
  ASSERT_EQ(::recv(kernel_.get(), message, sizeof message, 0), static_cast<ssize_t>(sizeof header));
  std::memcpy(&header, message, sizeof header);
  EXPECT_EQ(header.error, 8);  // FUSE_NOTIFY_INC_EPOCH
  EXPECT_EQ(receive().name, "a");
}

TEST_F(NotifierTest, UsesEpochsIfTheKernelsProtocolHasThem) {
  Notifier notifier(daemon_.get(), loop_);
  notifier.set_protocol(43);
  EXPECT_FALSE(notifier.knows_epoch());
  notifier.set_protocol(44);
  EXPECT_TRUE(notifier.knows_epoch());
}

}  // namespace
}  // namespace cacheshim
