// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "fuse/jobs/job.h"
#include "fuse/services/single_flight/flights.h"
#include "tests/unit/support/overlay_fixture.h"

// A Flights object with a simulated clock and real processes.
namespace cacheshim {

inline const std::string kFlightName = "fam/KEY/kernel.json";

// A child process that lives as long as the object.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ != 0) return;
    for (;;) ::pause();
  }
  ~Sleeper() {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

class FlightsTest : public OverlayTest {
 protected:
  FlightsTest() {
    for (Job* job : {&one_, &two_}) job->begin({}, PublishPolicy::kComplete, false);
    loop_.start();
  }

  // Returns a lease request of `process`. `thread` is the number of a simulated thread of the process; 0 is the main
  // thread.
  LeaseRequest request(Job& job, const Sleeper& process, const std::string& path = kFlightName,
                       int thread = 0) const {
    LeaseRequest made{path, job.shared_from_this(), /*publishes=*/true, {}, process.pid() + thread};
    const auto stat = stat_of(process.pid());
    made.lineage = {{process.pid(), stat ? stat->start_time : 0}};
    made.entry = entries_are_names_ ? path : path.substr(0, path.rfind('/'));
    if (const auto uid = uids_.find(&job); uid != uids_.end()) made.uid = uid->second;
    made.publishes = !untrusted_.contains(process.pid());
    if (builds_one_at_a_time_) made.rule = &profiles_.front().entries.front();
    return made;
  }
  Flights::Advice lookup(Job& job, const Sleeper& process, const std::string& path = kFlightName,
                         int thread = 0) {
    return flights_.request_lease(request(job, process, path, thread)).advice;
  }
  using Released = std::shared_ptr<std::atomic<bool>>;
  Released wait(Job& job, const Sleeper& process, const std::string& path = kFlightName) {
    LeaseRequest waiting = request(job, process, path);
    const auto answer = flights_.request_lease(waiting);
    EXPECT_EQ(answer.advice, Flights::Advice::kWait);
    waiting.path = waiting.entry = "";  // the request identifies the name only by the placeholder
    waiting.rule = nullptr;
    auto released = std::make_shared<std::atomic<bool>>(false);
    flights_.wait(answer.placeholder,
                  std::make_shared<FlightWait>(waiting, [released] { *released = true; }));
    return released;
  }
  void pass(std::chrono::milliseconds time) { passed_ms_ += static_cast<int>(time.count()); }
  static void await(const std::function<bool()>& condition) {
    for (int polls = 0; polls < 1000 && !condition(); ++polls) ::usleep(10'000);
    ASSERT_TRUE(condition());
  }
  static void await(const Released& released) {
    await([&] { return released->load(); });
  }
  // Kills the builder, and waits until Flights has handled its exit and then inspected the waiters' names.
  void await_exit(std::unique_ptr<const Sleeper>& builder) {
    builder.reset();
    const int before = inspections_;
    await([&] { return inspections_ > before + 2; });
  }
  // Lets 400 ms of simulated time pass, in which Flights checks the builders' activity at least twice.
  void await_checks() {
    const int before = checks_;
    pass(std::chrono::milliseconds(200));
    await([&] { return checks_ > before; });
    pass(std::chrono::milliseconds(200));
    await([&] { return checks_ > before + 1; });
  }

  std::map<const Job*, uid_t> uids_;  // the users of the jobs; default: 0
  std::set<pid_t> untrusted_;         // processes that may not publish
  bool builds_one_at_a_time_ = false;
  bool entries_are_names_ = false;  // entries are built elsewhere and renamed into place
  std::atomic<bool> is_inspection_held_{false};
  std::atomic<bool> is_there_{false};
  std::atomic<int> checks_{0};
  std::atomic<int> inspections_{0};
  // Called on the loop's thread with the number of the inspection. Set this before any process waits.
  std::function<void(int number)> during_inspection_;
  std::atomic<bool> thread_has_ended_{false};
  std::atomic<bool> works_{false};
  std::atomic<pid_t> worker_{0};  // this process counts as working even if works_ is false
  EntryState inspect() {
    const int number = ++inspections_;
    if (during_inspection_) during_inspection_(number);
    while (is_inspection_held_) ::usleep(1'000);
    return {.has_name = is_there_, .is_complete = is_there_, .is_begun = true, .completes = true};
  }
  std::optional<BuilderWork> work(pid_t builder) {
    ++checks_;
    const std::chrono::milliseconds used(works_ || builder == worker_ ? passed_ms_.load() : 0);
    return BuilderWork{.has_ended = thread_has_ended_, .used = {{builder, used}}};
  }

  // Replaced in tests of leases whose entries may come from other machines.
  std::function<std::unique_ptr<RemoteLease>(const std::string&, bool, std::function<void()>)>
      seek_ = [](const std::string&, bool, const std::function<void()>&) { return nullptr; };

  std::set<const Job*> building_;
  Mutex publishers_mutex_;
  std::vector<std::shared_ptr<Job>> publishers_ GUARDED_BY(publishers_mutex_);
  void set_publishers(std::vector<std::shared_ptr<Job>> jobs) {
    const MutexLock lock(publishers_mutex_);
    publishers_ = std::move(jobs);
  }
  std::atomic<int> passed_ms_{0};
  NodeTable nodes_;
  const std::shared_ptr<LowerStack> lowers_ =
      std::make_shared<LowerStack>(std::vector{base_.get()});
  const std::shared_ptr<Job> one_job_ =
      std::make_shared<Job>("one", lowers_, entries_, counters_, nodes_);
  Job& one_ = *one_job_;
  const std::shared_ptr<Job> two_job_ =
      std::make_shared<Job>("two", lowers_, entries_, counters_, nodes_);
  Job& two_ = *two_job_;
  const Sleeper builder_;
  const Sleeper other_;
  EventLoop loop_;
  Flights flights_{loop_,
                   {.timeout = std::chrono::minutes(2),
                    .leases = LeaseFiles(-1),
                    .inspect = [this](const Job&, const std::string&) { return inspect(); },
                    .publishers =
                        [this](const std::string&) {
                          const MutexLock lock(publishers_mutex_);
                          return publishers_;
                        },
                    .note_building =
                        [this](const Job& job, bool builds) {
                          if (builds) {
                            building_.insert(&job);
                          } else {
                            building_.erase(&job);
                          }
                        },
                    .seek = [this](auto... all) { return seek_(all...); },
                    .now =
                        [this, begin = std::chrono::steady_clock::now()] {
                          return begin + std::chrono::milliseconds(passed_ms_);
                        },
                    .work_of = [this](pid_t builder, const Process&) { return work(builder); }},
                   nodes_,
                   counters_};
};

}  // namespace cacheshim
