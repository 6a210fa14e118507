// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "fuse/transport/queue_drain.h"

namespace cacheshim {
namespace {

// Simulates the kernel's queue for one core (RequestRing).
class FakeQueue final : public QueueDrain::Receivers {
 public:
  std::uint64_t arrivals() const override { return arrivals_; }
  std::uint64_t held() const override { return held_; }
  bool are_at_rest() const override { return at_rest; }

  // Simulates the arrival of `requests` requests that get an entry and are answered later, and of
  // `waiting` more requests that find no free entry. For each request that gets an entry, a new entry
  // is registered.
  void hold(unsigned requests, unsigned waiting) {
    arrivals_ += requests;
    held_ += requests;
    waiting_ += waiting;
  }
  unsigned waiting() const { return waiting_; }
  unsigned unanswered() const { return unanswered_; }
  unsigned most_unanswered() const { return most_unanswered_; }
  unsigned probes_started() const { return probes_started_; }

  std::unique_ptr<QueueDrain::Probe> start_probe() {
    ++probes_started_;
    ++arrivals_;
    most_unanswered_ = std::max(most_unanswered_, ++unanswered_);
    if (overtaken > 0) {
      --overtaken;
      ++held_;
      return std::make_unique<Probe>(*this, false);
    }
    // The kernel gives the probe's entry to a waiting request, which is answered later.
    if (waiting_ > 0) {
      --waiting_;
      ++arrivals_;
      ++held_;
    }
    return std::make_unique<Probe>(*this, true);
  }

  // The number of upcoming probes whose entries other requests take. Those requests are answered later.
  unsigned overtaken = 0;
  bool at_rest = true;

 private:
  struct Probe final : QueueDrain::Probe {
    Probe(FakeQueue& of, bool answered) : queue(of), is_answered(answered) {}
    ~Probe() override { --queue.unanswered_; }
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;
    // A probe that waits gets an entry once no earlier request waits.
    bool is_over() override { return is_answered || queue.waiting() == 0; }

    FakeQueue& queue;
    const bool is_answered;
  };

  std::uint64_t arrivals_ = 0;
  std::uint64_t held_ = 0;
  unsigned waiting_ = 0;
  unsigned unanswered_ = 0;
  unsigned most_unanswered_ = 0;
  unsigned probes_started_ = 0;
};

struct Drain : testing::Test {
  // Returns true if the drain finishes within `checks` checks.
  bool finishes_within(unsigned checks) {
    for (; checks > 0; --checks) {
      if (!drain.check_once()) return true;
    }
    return false;
  }

  FakeQueue queue;
  QueueDrain drain{[this](std::uint16_t core) {
                     EXPECT_EQ(core, 3);
                     return queue.start_probe();
                   },
                   /*has_thread=*/false};
};

TEST_F(Drain, StartsAProbeForEachWaitingRequestAndOneMore) {
  queue.hold(4, 20);
  drain.note_held(queue, 3);
  EXPECT_TRUE(finishes_within(1000));
  EXPECT_EQ(queue.waiting(), 0U);
  EXPECT_EQ(queue.unanswered(), 0U);
  EXPECT_EQ(queue.probes_started(), 21U);
  EXPECT_FALSE(drain.check_once());
  EXPECT_EQ(queue.probes_started(), 21U);
}

TEST_F(Drain, StartsNoProbeUntilARequestIsHeld) {
  queue.hold(4, 20);
  EXPECT_FALSE(drain.check_once());
  EXPECT_EQ(queue.probes_started(), 0U);
}

TEST_F(Drain, RetriesProbesThatLostTheirEntries) {
  queue.hold(4, 20);
  queue.overtaken = 5;
  drain.note_held(queue, 3);
  EXPECT_TRUE(finishes_within(1000));
  EXPECT_EQ(queue.waiting(), 0U);
  EXPECT_EQ(queue.unanswered(), 0U);
}

TEST_F(Drain, LeavesNoMoreThanSixteenProbesUnanswered) {
  queue.hold(4, 1);
  queue.overtaken = 24;
  drain.note_held(queue, 3);
  EXPECT_TRUE(finishes_within(5000));
  EXPECT_EQ(queue.waiting(), 0U);
  EXPECT_EQ(queue.most_unanswered(), 16U);
}

TEST_F(Drain, WaitsForAReceiverThatIsBusyButNotForABlockedOne) {
  queue.hold(4, 1);
  queue.at_rest = false;
  drain.note_held(queue, 3);
  for (int checks = 0; checks < 10; ++checks) EXPECT_TRUE(drain.check_once());
  EXPECT_EQ(queue.probes_started(), 0U);
  EXPECT_TRUE(finishes_within(1000));
  EXPECT_EQ(queue.waiting(), 0U);
}

TEST_F(Drain, WithdrawsItsProbesWhenItStops) {
  queue.hold(4, 1);
  queue.overtaken = 1000;
  drain.note_held(queue, 3);
  for (int checks = 0; checks < 100; ++checks) EXPECT_TRUE(drain.check_once());
  EXPECT_GT(queue.unanswered(), 2U);
  drain.stop();
  EXPECT_EQ(queue.unanswered(), 0U);
}

}  // namespace
}  // namespace cacheshim
