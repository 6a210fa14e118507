// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/flights_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "fuse/services/single_flight/flights.h"

namespace cacheshim::flights_model {
namespace {

using std::chrono::milliseconds;
using Advice = Flights::Advice;
using Step = BuildStep;

constexpr std::size_t kNames = 3;
constexpr pid_t kFirstPid = 1 << 23;  // above every real one (PID_MAX_LIMIT)
constexpr milliseconds kTimeout = std::chrono::minutes(2);
constexpr milliseconds kAlmostTimeout = kTimeout - std::chrono::seconds(1);
constexpr milliseconds kExpectedFor(61);  // longer than a builder is expected

std::string path_of(std::size_t name) { return "fam/KEY" + std::to_string(name) + "/kernel.json"; }
std::string entry_of(std::size_t name) { return "fam/KEY" + std::to_string(name); }

// A name that a process looks up, waits for or builds. A name that it looks up during a build lies on top of that one.
struct Task {
  enum class State : std::uint8_t { kLooksUp, kWaits, kBuilds };
  std::size_t name;
  State state = State::kLooksUp;
  // Of a wait.
  std::shared_ptr<FlightWait> wait = {};
  std::shared_ptr<bool> is_answered = {};
  Lineage lineage = {};  // of the process, when it began to wait
  milliseconds deadline{0};
  bool is_interrupted = false;
  bool is_excused = false;  // it builds for itself after this wait
};

struct ModelProcess {
  pid_t pid = 0;
  Lineage lineage;
  Job* job = nullptr;
  std::vector<UniqueFd> watched;  // pipes, which are closed when it ends
  bool is_alive = true;
  bool is_stopped = false;
  std::vector<Task> tasks;
};

bool works_for(const Lineage& lineage, pid_t pid) {
  return std::any_of(lineage.begin(), lineage.end(),
                     [&](const Process& one) { return one.pid == pid; });
}

class World {
 public:
  World(const std::vector<Job*>& jobs, Counters& counters);
  // What went wrong, or "".
  std::string run(const std::vector<Action>& actions);

 private:
  struct NameState {
    bool is_published = false;
    pid_t leader = 0;
    bool leader_may_be_replaced =
        false;                      // it is gone, stopped, has failed or given up, or had been so
    std::set<const Job*> begun_by;  // those whose layer has the entry's directory
    std::set<pid_t> released;       // they build for themselves
    milliseconds failed_until{0};
  };

  void act(const Action& action);
  void act_as_builder(ModelProcess& process, const Action& action);
  void nest(ModelProcess& process, std::size_t name);
  void proceed(ModelProcess& process, unsigned number);
  void look_up(ModelProcess& process, Task& task);
  void end_build(ModelProcess& process);
  void fail_by_return(ModelProcess& process, Task& task);
  void fail_by_clearing(ModelProcess& process, Task& task);
  void loop(ModelProcess& process, Task& task);
  void kill(ModelProcess& process);
  void pass(milliseconds time) { now_ += time; }
  void tend();
  void drain();
  void fault(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }

  void note_failures(std::size_t name, bool may_fail);
  void check_leaders();
  void check_released();
  void check_waits();
  void check_build(const ModelProcess& process, const Task& task);
  enum class Kin : std::uint8_t { kCounts, kDoesNotCount };
  bool closes_cycle(const ModelProcess& process, std::size_t name, Kin kin = Kin::kCounts) const;
  // A builder that was stopped before the same check released its kin.
  bool works_for_stopped(const ModelProcess& process) {
    return std::any_of(process.lineage.begin(), process.lineage.end(),
                       [&](const Process& one) { return find(one.pid)->is_stopped; });
  }
  static UniqueFd watch(ModelProcess& process);
  ModelProcess* find(pid_t pid);
  LeaseRequest lease_request_of(const ModelProcess& process, std::size_t name) const;
  bool is_there(std::size_t name) const { return names_.at(name).is_published; }

  Counters& counters_;
  NodeTable nodes_;
  milliseconds now_{0};
  std::array<NameState, kNames> names_;
  std::vector<ModelProcess> processes_;
  std::uint64_t failures_seen_ = 0;
  std::string fault_;
  Flights flights_;
};

World::World(const std::vector<Job*>& jobs, Counters& counters)
    : counters_(counters),
      failures_seen_(counters.flight_failures),
      flights_({.timeout = kTimeout,
                .leases = LeaseFiles(-1),
                .inspect =
                    [this](const Job& job, const std::string& path) {
                      const std::size_t name = static_cast<std::size_t>(path.at(7) - '0');
                      const NameState& state = names_.at(name);
                      return EntryState{.has_name = state.is_published,
                                        .is_complete = state.is_published,
                                        .is_begun = state.begun_by.contains(&job),
                                        .completes = true};
                    },
                .now = [this] { return std::chrono::steady_clock::time_point() + now_; },
                .watch =
                    [this](const Process& watched) {
                      ModelProcess* const process = find(watched.pid);
                      return process != nullptr && process->is_alive ? watch(*process) : UniqueFd();
                    },
                .is_stopped =
                    [this](const Process& asked) {
                      const ModelProcess* const process = find(asked.pid);
                      return process != nullptr && process->is_alive && process->is_stopped;
                    },
                .has_thread = false},
               nodes_, counters) {
  for (std::size_t at = 0; at < kProcesses; ++at) {
    ModelProcess process;
    process.pid = kFirstPid + static_cast<pid_t>(at);
    process.lineage = {{process.pid, 1}};
    if (at == kProcesses - 1) process.lineage.push_back({kFirstPid, 1});  // a child of the first
    process.job = jobs.at(at == kProcesses - 1 ? 0 : at % jobs.size());
    processes_.push_back(std::move(process));
  }
}

// A descriptor that epoll reports once the process has ended, as it does a pidfd.
UniqueFd World::watch(ModelProcess& process) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return {};
  process.watched.emplace_back(ends[1]);
  return UniqueFd(ends[0]);
}

ModelProcess* World::find(pid_t pid) {
  const auto at = static_cast<std::size_t>(pid - kFirstPid);
  return pid >= kFirstPid && at < processes_.size() ? &processes_[at] : nullptr;
}

LeaseRequest World::lease_request_of(const ModelProcess& process, std::size_t name) const {
  LeaseRequest request{path_of(name), process.job, /*publishes=*/true, process.lineage,
                       process.pid};
  request.entry = entry_of(name);
  return request;
}

// Call after each call that may find a build to have failed.
void World::note_failures(std::size_t name, bool may_fail) {
  const std::uint64_t failures = counters_.flight_failures;
  if (failures == failures_seen_) return;
  failures_seen_ = failures;
  NameState& state = names_.at(name);
  if (!may_fail)
    fault("the build of name " + std::to_string(name) + " counts as failed without a sign");
  state.failed_until = now_ + LeaseTable::kFailedFor;
  state.leader_may_be_replaced = true;
  for (ModelProcess& process : processes_) {
    for (Task& task : process.tasks) {
      if (task.name == name && task.state == Task::State::kWaits) task.is_excused = true;
    }
  }
}

// Whether the builder of `name` waits, directly or by way of others, for the process. If kin counts, so does a wait of a
// builder's descendant.
bool World::closes_cycle(const ModelProcess& process, std::size_t name, Kin kin) const {
  std::set<pid_t> builders{names_.at(name).leader};
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (const ModelProcess& other : processes_) {
      if (other.tasks.empty() || other.tasks.back().state != Task::State::kWaits) continue;
      const Task& waits = other.tasks.back();
      if (*waits.is_answered) continue;
      const bool works_for_one =
          std::any_of(waits.lineage.begin(), waits.lineage.end(), [&](const Process& one) {
            return builders.contains(one.pid) && (kin == Kin::kCounts || one.pid == other.pid);
          });
      if (!works_for_one) continue;
      has_grown |= builders.insert(names_.at(waits.name).leader).second;
    }
  }
  return std::any_of(process.lineage.begin(), process.lineage.end(), [&](const Process& one) {
    return builders.contains(one.pid) && (kin == Kin::kCounts || one.pid == process.pid);
  });
}

// A process may build a name without its lease for one of these reasons.
void World::check_build(const ModelProcess& process, const Task& task) {
  const NameState& state = names_.at(task.name);
  if (works_for(process.lineage, state.leader) || task.is_excused || now_ < state.failed_until)
    return;
  // So does a descendant of a process that builds for itself.
  const bool has_built =
      std::any_of(process.lineage.begin(), process.lineage.end(),
                  [&](const Process& one) { return state.released.contains(one.pid); });
  if (has_built || closes_cycle(process, task.name)) return;
  fault("process " + std::to_string(process.pid - kFirstPid) + " builds name " +
        std::to_string(task.name) + " beside its builder");
}

void World::look_up(ModelProcess& process, Task& task) {
  if (is_there(task.name)) return end_build(process);
  NameState& state = names_.at(task.name);
  state.begun_by.insert(process.job);
  const bool returns = state.leader == process.pid;  // after it gave up
  const Flights::Answer answer = flights_.look(lease_request_of(process, task.name));
  note_failures(task.name, returns);
  switch (answer.advice) {
    case Advice::kLead:
      check_leaders();
      task.state = Task::State::kBuilds;
      break;
    case Advice::kBuild:
      check_leaders();
      check_build(process, task);
      state.released.insert(process.pid);
      task.state = Task::State::kBuilds;
      break;
    case Advice::kWait: {
      task.is_answered = std::make_shared<bool>(false);
      LeaseRequest waiting = lease_request_of(process, task.name);
      task.wait =
          std::make_shared<FlightWait>(waiting, [done = task.is_answered] { *done = true; });
      task.lineage = process.lineage;
      task.deadline = now_ + kTimeout;
      task.is_interrupted = task.is_excused = false;
      task.state = Task::State::kWaits;
      flights_.wait(answer.placeholder, task.wait);
      nodes_.forget(answer.placeholder, 1);
      break;
    }
  }
}

void World::proceed(ModelProcess& process, unsigned number) {
  if (process.tasks.empty()) process.tasks.push_back({.name = number % kNames});
  Task& task = process.tasks.back();
  switch (task.state) {
    case Task::State::kLooksUp:
      return look_up(process, task);
    case Task::State::kWaits:
      if (!*task.is_answered) return;
      task.state = Task::State::kLooksUp;
      return look_up(process, task);
    case Task::State::kBuilds:
      return;
  }
}

// The process is done with its innermost name.
void World::end_build(ModelProcess& process) { process.tasks.pop_back(); }

void World::fail_by_return(ModelProcess& process, Task& task) {
  NameState& state = names_.at(task.name);
  const bool is_leader = state.leader == process.pid;
  pass(kFlightApproach + milliseconds(1));
  (void)flights_.look(lease_request_of(process, task.name));
  note_failures(task.name, is_leader);
  check_leaders();
  end_build(process);
}

void World::fail_by_clearing(ModelProcess& process, Task& task) {
  flights_.note_step(*process.job, entry_of(task.name), Step::kTemporary);
  flights_.note_step(*process.job, entry_of(task.name), Step::kCleared);
  // The daemon does not know which process of the job has made the file.
  const ModelProcess* const leader = find(names_.at(task.name).leader);
  note_failures(task.name, leader != nullptr && leader->job == process.job);
  end_build(process);
}

void World::loop(ModelProcess& process, Task& task) {
  flights_.note_step(*process.job, entry_of(task.name), Step::kTemporary);
  for (int lookups = 0; lookups < 10; ++lookups) {
    pass(milliseconds(2));
    NameState& state = names_.at(task.name);
    state.leader_may_be_replaced |= state.leader == process.pid;
    (void)flights_.look(lease_request_of(process, task.name));
    check_leaders();
  }
  note_failures(task.name, false);
  names_.at(task.name).released.insert(process.pid);
}

void World::kill(ModelProcess& process) {
  process.is_alive = false;
  for (ModelProcess& child : processes_) {  // they are init's now
    if (child.pid != process.pid) std::erase(child.lineage, process.lineage.front());
  }
  process.watched.clear();
  for (Task& task : process.tasks) {
    if (task.wait) task.wait->interrupt();  // as the kernel does
  }
}

void World::act_as_builder(ModelProcess& process, const Action& action) {
  Task& task = process.tasks.back();
  const std::string entry = entry_of(task.name);
  switch (action.kind) {
    case ActionKind::kMakeFile:
      return flights_.note_step(*process.job, entry, Step::kTemporary);
    case ActionKind::kFinish:
      flights_.note_step(*process.job, entry, Step::kPart);
      names_.at(task.name).is_published = true;
      flights_.finished(*process.job, entry);
      return end_build(process);
    case ActionKind::kReturn:
      return fail_by_return(process, task);
    case ActionKind::kClear:
      return fail_by_clearing(process, task);
    case ActionKind::kLoop:
      return loop(process, task);
    case ActionKind::kRemove:
      names_.at(task.name).begun_by.erase(process.job);
      return end_build(process);
    case ActionKind::kNest:
      return nest(process, action.number % kNames);
    default:
      return;
  }
}

void World::nest(ModelProcess& process, std::size_t name) {
  const bool is_known = std::any_of(process.tasks.begin(), process.tasks.end(),
                                    [&](const Task& one) { return one.name == name; });
  if (is_known) return;
  process.tasks.push_back({.name = name});
  look_up(process, process.tasks.back());
}

void World::act(const Action& action) {
  ModelProcess& process = processes_.at(action.process);
  const bool runs = process.is_alive && !process.is_stopped;
  Task* const task = process.tasks.empty() ? nullptr : &process.tasks.back();
  switch (action.kind) {
    case ActionKind::kProceed:
      if (runs) proceed(process, action.number);
      break;
    case ActionKind::kKill:
      if (process.is_alive) kill(process);
      break;
    case ActionKind::kStop:
    case ActionKind::kContinue:
      process.is_stopped = action.kind == ActionKind::kStop;
      break;
    case ActionKind::kInterrupt:
      if (!process.is_alive || task == nullptr || task->state != Task::State::kWaits) break;
      task->is_interrupted = true;
      task->wait->interrupt();
      break;
    case ActionKind::kPass:
      pass(milliseconds(action.number));
      break;
    case ActionKind::kPassLong:
      pass(kAlmostTimeout);
      break;
    case ActionKind::kTend:
      tend();
      break;
    default:
      if (runs && task != nullptr && task->state == Task::State::kBuilds)
        act_as_builder(process, action);
  }
}

// A name's builder is another one only if the one before may be replaced.
void World::check_leaders() {
  std::array<pid_t, kNames> leaders{};
  for (const FlightDescription& one : flights_.describe()) {
    if (!one.leader_job.empty())
      leaders.at(static_cast<std::size_t>(one.path.at(7) - '0')) = one.leader;
  }
  for (std::size_t name = 0; name < kNames; ++name) {
    NameState& state = names_.at(name);
    const ModelProcess* const before = find(state.leader);
    const bool is_gone = before == nullptr || !before->is_alive || before->is_stopped ||
                         state.is_published || !state.begun_by.contains(before->job) ||
                         state.leader_may_be_replaced;
    if (leaders.at(name) == state.leader) continue;
    if (!is_gone && leaders.at(name) != 0) {
      fault("name " + std::to_string(name) + " has a second builder while the first goes on");
    }
    if (state.leader != 0) state.released.insert(state.leader);  // it may still build
    state.leader = leaders.at(name);
    state.leader_may_be_replaced = false;
  }
}

// Each process that was released without the name must have had a reason.
void World::check_released() {
  for (ModelProcess& process : processes_) {
    for (Task& task : process.tasks) {
      if (task.state != Task::State::kWaits || !*task.is_answered || task.is_excused) continue;
      const NameState& state = names_.at(task.name);
      const bool leads = state.leader == process.pid;
      const bool has_a_reason =
          state.is_published || task.is_interrupted || task.deadline <= now_ || leads ||
          !process.is_alive || process.is_stopped || now_ < state.failed_until ||
          closes_cycle(process, task.name) || state.leader == 0 ||
          !state.begun_by.contains(process.job) ||  // the builder gave up for the job
          works_for(process.lineage, state.leader) || works_for_stopped(process);
      if (!has_a_reason) {
        fault("process " + std::to_string(process.pid - kFirstPid) + " was released from name " +
              std::to_string(task.name) + " without a reason");
      }
      task.is_excused = true;
      if (!leads) names_.at(task.name).released.insert(process.pid);
    }
  }
}

// A stopped builder is replaced at the next check.
void World::tend() {
  for (NameState& state : names_) {
    const ModelProcess* const leader = find(state.leader);
    if (leader != nullptr && (leader->is_stopped || !leader->is_alive))
      state.leader_may_be_replaced = true;
  }
  flights_.tend_once(milliseconds(0));
  check_leaders();
  note_failures(0, false);
  check_released();
}

// Once everything that has happened is known, somebody builds each name that is waited for.
void World::check_waits() {
  pass(kExpectedFor);
  for (std::size_t at = 0; at < kProcesses; ++at) tend();  // each replaces one stopped builder a name
  for (const ModelProcess& process : processes_) {
    if (!process.is_alive || process.tasks.empty()) continue;
    const Task& task = process.tasks.back();
    if (task.state != Task::State::kWaits || *task.is_answered) continue;
    const NameState& state = names_.at(task.name);
    const ModelProcess* const leader = find(state.leader);
    if (leader == nullptr || !leader->is_alive || leader->is_stopped ||
        !state.begun_by.contains(leader->job)) {
      fault("process " + std::to_string(process.pid - kFirstPid) + " waits for name " +
            std::to_string(task.name) + ", which nobody builds");
    } else if (closes_cycle(process, task.name, Kin::kDoesNotCount)) {
      fault("process " + std::to_string(process.pid - kFirstPid) + " waits for itself");
    }
  }
}

// All processes run again and finish what they build.
void World::drain() {
  for (std::size_t at = 0; at < processes_.size(); ++at) act({ActionKind::kContinue, at, 0});
  for (int round = 0; round < 100; ++round) {
    for (std::size_t at = 0; at < processes_.size(); ++at) {
      if (!processes_.at(at).tasks.empty()) act({ActionKind::kProceed, at, 0});
      act({ActionKind::kFinish, at, 0});
    }
    pass(std::chrono::seconds(5));  // a builder may have left without a sign
    tend();
  }
  for (const ModelProcess& process : processes_) {
    if (process.is_alive && !process.tasks.empty()) {
      fault("process " + std::to_string(process.pid - kFirstPid) + " never returns from name " +
            std::to_string(process.tasks.back().name));
    }
  }
}

std::string World::run(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    act(action);
    check_leaders();
    check_released();
    if (action.kind == ActionKind::kTend && action.number % 4 == 0) check_waits();
    if (!fault_.empty()) return fault_;
  }
  check_waits();
  drain();
  return fault_;
}

}  // namespace

std::string run(const std::vector<Job*>& jobs, Counters& counters,
                const std::vector<Action>& actions) {
  return World(jobs, counters).run(actions);
}

}  // namespace cacheshim::flights_model
