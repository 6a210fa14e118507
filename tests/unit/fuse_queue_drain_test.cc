// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fuse/transport/queue_drain.h"

namespace cacheshim {
namespace {

// The queue of one core, as the kernel keeps it (RequestRing).
class FakeQueue final : public QueueDrain::Receivers {
 public:
  std::uint64_t arrivals() const override { return locked(arrivals_); }
  std::uint64_t held() const override { return locked(held_); }
  bool are_at_rest() const override { return true; }

  // So many requests that are answered later come at once. As many find no entry. For each of the others there is
  // a new one.
  void hold(unsigned requests, unsigned waiting) {
    const std::lock_guard lock(mutex_);
    arrivals_ += requests;
    held_ += requests;
    waiting_ += waiting;
  }
  // Others take the entries just before the next so many questions, and are answered later.
  void overtake(unsigned questions) {
    const std::lock_guard lock(mutex_);
    overtaken_ = questions;
  }
  unsigned waiting() const { return locked(waiting_); }
  unsigned most_unanswered() const { return locked(most_unanswered_); }
  unsigned unanswered() const { return locked(unanswered_); }

  std::unique_ptr<QueueDrain::Question> ask() {
    const std::lock_guard lock(mutex_);
    most_unanswered_ = std::max(most_unanswered_, ++unanswered_);
    if (overtaken_ > 0) {
      --overtaken_;
      ++arrivals_;
      ++held_;
      return std::make_unique<Question>(*this);
    }
    ++arrivals_;
    if (waiting_ > 0) {  // is handed the entry of the question, and answered later
      --waiting_;
      ++arrivals_;
      ++held_;
    }
    return std::make_unique<Question>(*this, true);
  }

 private:
  struct Question final : QueueDrain::Question {
    explicit Question(FakeQueue& of, bool answered = false) : queue(of), is_answered(answered) {}
    ~Question() override {
      const std::lock_guard lock(queue.mutex_);
      --queue.unanswered_;
    }
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;
    // Those that wait for an entry get one when nobody is before them any more.
    bool is_over() override { return is_answered || queue.waiting() == 0; }

    FakeQueue& queue;
    const bool is_answered;
  };

  template <class Value>
  Value locked(const Value& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  std::uint64_t arrivals_ = 0;
  std::uint64_t held_ = 0;
  unsigned waiting_ = 0;
  unsigned overtaken_ = 0;
  unsigned unanswered_ = 0;
  unsigned most_unanswered_ = 0;
};

struct Drain : testing::Test {
  static bool comes_true(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  FakeQueue queue;
  QueueDrain drain{[this](std::uint16_t core) {
    EXPECT_EQ(core, 3);
    return queue.ask();
  }};
};

TEST_F(Drain, PassesAllWaitingRequestsToTheDaemonAndStops) {
  queue.hold(4, 20);
  drain.note_held(queue, 3);
  ASSERT_TRUE(comes_true([this] { return queue.waiting() == 0; }));
  ASSERT_TRUE(comes_true([this] { return queue.unanswered() == 0; }));
  const std::uint64_t then = queue.arrivals();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(queue.arrivals(), then + 1);
}

TEST_F(Drain, AsksAgainWhenOthersHaveTakenTheEntriesForItsQuestions) {
  queue.hold(4, 20);
  queue.overtake(5);
  drain.note_held(queue, 3);
  EXPECT_TRUE(comes_true([this] { return queue.waiting() == 0; }));
  EXPECT_TRUE(comes_true([this] { return queue.unanswered() == 0; }));
}

TEST_F(Drain, LeavesNoMoreThanSixteenQuestionsUnanswered) {
  queue.hold(4, 1);
  queue.overtake(24);
  drain.note_held(queue, 3);
  EXPECT_TRUE(comes_true([this] { return queue.waiting() == 0; }));
  EXPECT_EQ(queue.most_unanswered(), 16U);
}

TEST_F(Drain, WithdrawsItsQuestionsWhenItStops) {
  queue.hold(4, 1);
  queue.overtake(1000);
  drain.note_held(queue, 3);
  ASSERT_TRUE(comes_true([this] { return queue.unanswered() > 2; }));
  drain.stop();
  EXPECT_EQ(queue.unanswered(), 0U);
}

}  // namespace
}  // namespace cacheshim
