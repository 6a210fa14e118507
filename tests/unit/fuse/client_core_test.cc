// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/client_core.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace cacheshim {
namespace {

// The number of consecutive requests by one client after which the receiver moves to the client's
// core.
constexpr unsigned kEnough = 64;

std::vector<int> cores_of(pid_t thread) {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(thread, sizeof set, &set) == -1) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

void go_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
}

// A thread that sleeps on the core to which move_to() last moved it.
class Client {
 public:
  explicit Client(int core) : thread_([this] { run(); }) { move_to(core); }
  ~Client() {
    call(-1);
    thread_.join();
  }
  void move_to(int core) { call(core); }
  pid_t id() const { return id_; }

 private:
  void call(int core) {
    std::unique_lock lock(mutex_);
    core_ = core;
    is_called_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_called_; });
  }
  void run() {
    std::unique_lock lock(mutex_);
    id_ = ::gettid();
    for (bool goes_on = true; goes_on;) {
      changed_.wait(lock, [this] { return is_called_; });
      goes_on = core_ >= 0;
      if (goes_on) go_to(core_);
      is_called_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_called_ = false;
  int core_ = -1;
  pid_t id_ = 0;
  std::thread thread_;
};

bool set_policy(int policy) {
  const sched_param parameter{};
  return ::sched_setscheduler(0, policy, &parameter) == 0;
}

bool may_give_up_idleness() {
  bool may = false;
  std::thread([&may] { may = set_policy(SCHED_IDLE) && set_policy(SCHED_OTHER); }).join();
  return may;
}

void send_requests(ClientCore::Guest& guest, pid_t client, unsigned times = kEnough) {
  for (unsigned i = 0; i < times; ++i) guest.note_request(client);
}

class ClientCoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!may_give_up_idleness()) GTEST_SKIP() << "needs CAP_SYS_NICE";
    if (all_.size() < 2) GTEST_SKIP() << "needs two cores";
  }
  void send_requests(pid_t client, unsigned times = kEnough) {
    cacheshim::send_requests(guest_, client, times);
  }
  // Moves the client between two cores up to 40 times, and stops as soon as the receiver has ended its stay. After each
  // move, calls follow() for the receiver and sends `requests` requests of the client.
  void move_about(Client& client, unsigned requests) {
    for (unsigned i = 0; i < 40 && guest_.is_in(); ++i) {
      client.move_to(i % 2 == 0 ? all_.back() : all_.front());
      guest_.follow();
      send_requests(client.id(), requests);
    }
  }
  void expect_ordinary() {
    EXPECT_FALSE(guest_.is_in());
    EXPECT_FALSE(core_.has_guest());
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(cores_of(0), all_);
  }
  void expect_on(int core) {
    EXPECT_TRUE(guest_.is_in());
    EXPECT_TRUE(core_.has_guest());
    EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
    EXPECT_EQ(cores_of(0), std::vector<int>{core});
  }

  const std::vector<int> all_ = cores_of(0);
  ClientCore core_;
  ClientCore::Guest guest_{core_};
};

TEST_F(ClientCoreTest, AClientWithEnoughRequestsGetsTheReceiverOnItsCore) {
  const Client client(all_.back());
  send_requests(client.id(), kEnough - 1);
  expect_ordinary();
  send_requests(client.id(), 1);
  expect_on(all_.back());
  guest_.leave();
  expect_ordinary();
}

TEST_F(ClientCoreTest, AnotherClientEndsTheStay) {
  const Client client(all_.front());
  const Client other(all_.back());
  send_requests(client.id());
  send_requests(other.id(), 1);
  expect_ordinary();
  send_requests(client.id(), kEnough - 1);  // the request of `other` has reset the count
  expect_ordinary();
  send_requests(other.id());
  expect_on(all_.back());
}

TEST_F(ClientCoreTest, RequestsWithoutAClientDoNotCount) {
  const Client client(all_.front());
  send_requests(0, 2 * kEnough);
  expect_ordinary();
  send_requests(client.id());
  send_requests(0);
  expect_on(all_.front());
}

TEST_F(ClientCoreTest, TheClientIsFollowed) {
  Client client(all_.front());
  send_requests(client.id());
  guest_.follow();
  expect_on(all_.front());
  client.move_to(all_.back());
  guest_.follow();
  expect_on(all_.back());
}

TEST_F(ClientCoreTest, AClientThatIsMovedOftenGetsNoGuest) {
  Client client(all_.front());
  send_requests(client.id());
  move_about(client, 1);
  const auto left = std::chrono::steady_clock::now();
  expect_ordinary();
  send_requests(client.id());
  // For one second, the receiver does not move to a client again.
  if (std::chrono::steady_clock::now() - left < std::chrono::milliseconds(900)) expect_ordinary();
}

TEST_F(ClientCoreTest, RareMovesDoNotEndTheStay) {
  Client client(all_.front());
  send_requests(client.id());
  move_about(client, kEnough);
  expect_on(all_.front());
}

TEST_F(ClientCoreTest, AStoppedGuestIsOrdinaryAtOnceAndForAWhile) {
  const Client client(all_.front());
  send_requests(client.id());
  std::thread([this] { core_.stop(); }).join();
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  EXPECT_EQ(cores_of(0), all_);
  send_requests(client.id(), 1);
  expect_ordinary();
  send_requests(client.id(), 2 * kEnough);
  expect_ordinary();
}

TEST_F(ClientCoreTest, AfterAPauseAGuestIsTriedAgain) {
  const Client client(all_.front());
  send_requests(client.id());
  core_.stop();
  send_requests(client.id(), 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!guest_.is_in() && std::chrono::steady_clock::now() < deadline)
    send_requests(client.id(), 1);
  send_requests(client.id());
  expect_on(all_.front());
}

TEST_F(ClientCoreTest, StoppingWithoutAGuestChangesNothing) {
  const Client client(all_.front());
  std::thread([this] {
    ASSERT_TRUE(set_policy(SCHED_BATCH));
    core_.stop();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
  }).join();
  send_requests(client.id());
  expect_on(all_.front());
}

TEST_F(ClientCoreTest, OnlyOneReceiverIsAGuestAtATime) {
  const Client client(all_.front());
  std::thread([this, &client] {
    ClientCore::Guest first(core_);
    cacheshim::send_requests(first, client.id());
    EXPECT_TRUE(first.is_in());
    std::thread([this] { core_.stop(); }).join();
    EXPECT_TRUE(core_.has_guest());  // the guest has not processed the stop yet
    std::thread([this, &client] {
      ClientCore::Guest second(core_);
      cacheshim::send_requests(second, client.id());
      EXPECT_FALSE(second.is_in());
      EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    }).join();
    EXPECT_TRUE(core_.has_guest());
  }).join();
  expect_ordinary();
}

TEST_F(ClientCoreTest, AGuestWhoseClientIsGoneStaysWhereItIs) {
  pid_t gone = 0;
  std::thread([&gone] { gone = ::gettid(); }).join();
  send_requests(gone);
  expect_ordinary();
}

TEST_F(ClientCoreTest, APresetSchedulingPolicyStays) {
  const Client client(all_.front());
  std::thread([this, &client] {
    ASSERT_TRUE(set_policy(SCHED_BATCH));
    ClientCore core;
    ClientCore::Guest guest(core);
    cacheshim::send_requests(guest, client.id());
    EXPECT_FALSE(guest.is_in());
    EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
    EXPECT_EQ(cores_of(0), all_);
  }).join();
}

// A receiver that is bound to one core, as RingLoop's receivers are.
TEST_F(ClientCoreTest, AReceiverWithACoreStaysThereWhereverTheClientGoes) {
  Client client(all_.front());
  ClientCore own(core_, all_.back());
  std::thread([&] {
    go_to(all_.back());
    ClientCore::Guest guest(own);
    cacheshim::send_requests(guest, client.id());
    EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
    for (unsigned i = 0; i < 40; ++i) {
      client.move_to(i % 2 == 0 ? all_.back() : all_.front());
      guest.follow();
      cacheshim::send_requests(guest, client.id(), 1);
    }
    EXPECT_TRUE(guest.is_in());
    EXPECT_EQ(cores_of(0), std::vector<int>{all_.back()});
    guest.leave();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(cores_of(0), std::vector<int>{all_.back()});
  }).join();
}

TEST_F(ClientCoreTest, ARestingGuestMayReturnAtOnce) {
  const Client client(all_.back());
  ClientCore own(core_, all_.back());
  std::thread([&] {
    go_to(all_.back());
    ClientCore::Guest guest(own);
    cacheshim::send_requests(guest, client.id());
    std::thread([&own] { own.rest(); }).join();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_FALSE(own.has_guest());
    cacheshim::send_requests(guest, client.id(), 1);
    EXPECT_FALSE(guest.is_in());
    cacheshim::send_requests(guest, client.id());
    EXPECT_TRUE(own.has_guest());
    EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
  }).join();
}

TEST_F(ClientCoreTest, TheStayEndsWithTheGuest) {
  const Client client(all_.front());
  {
    ClientCore::Guest guest(core_);
    cacheshim::send_requests(guest, client.id());
    EXPECT_TRUE(guest.is_in());
  }
  expect_ordinary();
}

}  // namespace
}  // namespace cacheshim
