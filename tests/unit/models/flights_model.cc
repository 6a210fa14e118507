// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/models/flights_model.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "fuse/services/single_flight/flights.h"
#include "tests/unit/models/flights_world.h"

namespace cacheshim::flights_model {
namespace {

using std::chrono::milliseconds;
using Advice = Flights::Advice;
using Step = BuildStep;

constexpr milliseconds kAlmostTimeout = kTimeout - std::chrono::seconds(1);

class Model {
 public:
  Model(const std::vector<Job*>& jobs, Counters& counters)
      : world_(jobs, counters), failures_seen_(counters.flight_failures) {}
  // Runs the actions. Returns the first fault, or "" if there is none.
  std::string run(const std::vector<Action>& actions);

 private:
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
  void pass(milliseconds time) { world_.now += time; }
  void tend();
  void drain();
  void fault(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }

  void note_failures(std::size_t name, bool may_fail);
  void check_builders();
  void check_released();
  void check_waits();
  void check_build(const ModelProcess& process, const Task& task);
  bool is_there(std::size_t name) const { return world_.names.at(name).is_published; }

  World world_;
  std::uint64_t failures_seen_ = 0;
  std::string fault_;
};

// Verifies that a build was marked as failed only if `may_fail` is true. Must be called after each call to Flights that
// may mark a build as failed.
void Model::note_failures(std::size_t name, bool may_fail) {
  const std::uint64_t failures = world_.counters.flight_failures;
  if (failures == failures_seen_) return;
  failures_seen_ = failures;
  NameState& state = world_.names.at(name);
  if (!may_fail)
    fault("the build of name " + std::to_string(name) + " was marked as failed without a reason");
  state.failed_until = world_.now + LeaseTable::kFailedFor;
  state.builder_may_be_replaced = true;
  for (ModelProcess& process : world_.processes) {
    for (Task& task : process.tasks) {
      if (task.name == name && task.state == Task::State::kWaits) task.is_excused = true;
    }
  }
}

// Verifies that a process that builds without the lease has one of the permitted reasons.
void Model::check_build(const ModelProcess& process, const Task& task) {
  const NameState& state = world_.names.at(task.name);
  if (works_for(process.lineage, state.builder) || task.is_excused ||
      world_.now < state.failed_until)
    return;
  // Descendants of a process that builds without the lease may also build.
  const bool has_built =
      std::any_of(process.lineage.begin(), process.lineage.end(),
                  [&](const Process& one) { return state.released.contains(one.pid); });
  if (has_built || world_.closes_cycle(process, task.name)) return;
  fault("process " + std::to_string(process.pid - kFirstPid) + " builds name " +
        std::to_string(task.name) + " beside its builder");
}

void Model::look_up(ModelProcess& process, Task& task) {
  if (is_there(task.name)) return end_build(process);
  NameState& state = world_.names.at(task.name);
  state.begun_by.insert(process.job);
  // A builder that looks up its name again has given up.
  const bool returns = state.builder == process.pid;
  const Flights::Answer answer =
      world_.flights.request_lease(world_.lease_request_of(process, task.name));
  note_failures(task.name, returns);
  switch (answer.advice) {
    case Advice::kBuildWithLease:
      check_builders();
      task.state = Task::State::kBuilds;
      break;
    case Advice::kBuild:
      check_builders();
      check_build(process, task);
      state.released.insert(process.pid);
      task.state = Task::State::kBuilds;
      break;
    case Advice::kWait: {
      task.is_answered = std::make_shared<bool>(false);
      LeaseRequest waiting = world_.lease_request_of(process, task.name);
      task.wait =
          std::make_shared<FlightWait>(waiting, [done = task.is_answered] { *done = true; });
      task.lineage = process.lineage;
      task.deadline = world_.now + kTimeout;
      task.is_interrupted = task.is_excused = false;
      task.state = Task::State::kWaits;
      world_.flights.wait(answer.placeholder, task.wait);
      world_.nodes.forget(answer.placeholder, 1);
      break;
    }
  }
}

void Model::proceed(ModelProcess& process, unsigned number) {
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

// Must be called when the process has finished building the name that it looked up last.
void Model::end_build(ModelProcess& process) { process.tasks.pop_back(); }

void Model::fail_by_return(ModelProcess& process, Task& task) {
  NameState& state = world_.names.at(task.name);
  const bool is_builder = state.builder == process.pid;
  pass(kFlightApproach + milliseconds(1));
  (void)world_.flights.request_lease(world_.lease_request_of(process, task.name));
  note_failures(task.name, is_builder);
  check_builders();
  end_build(process);
}

void Model::fail_by_clearing(ModelProcess& process, Task& task) {
  world_.flights.note_step(*process.job, entry_of(task.name), Step::kTemporary);
  world_.flights.note_step(*process.job, entry_of(task.name), Step::kCleared);
  // The daemon does not know which of the job's processes created the file.
  const ModelProcess* const builder = world_.find(world_.names.at(task.name).builder);
  note_failures(task.name, builder != nullptr && builder->job == process.job);
  end_build(process);
}

void Model::loop(ModelProcess& process, Task& task) {
  world_.flights.note_step(*process.job, entry_of(task.name), Step::kTemporary);
  for (int lookups = 0; lookups < 10; ++lookups) {
    pass(milliseconds(2));
    NameState& state = world_.names.at(task.name);
    state.builder_may_be_replaced |= state.builder == process.pid;
    (void)world_.flights.request_lease(world_.lease_request_of(process, task.name));
    check_builders();
  }
  note_failures(task.name, false);
  world_.names.at(task.name).released.insert(process.pid);
}

void Model::kill(ModelProcess& process) {
  process.is_alive = false;
  for (ModelProcess& child : world_.processes) {  // reparents the children to init
    if (child.pid != process.pid) std::erase(child.lineage, process.lineage.front());
  }
  process.watched.clear();
  for (Task& task : process.tasks) {
    if (task.wait) task.wait->interrupt();  // the kernel interrupts a killed process's request
  }
}

void Model::act_as_builder(ModelProcess& process, const Action& action) {
  Task& task = process.tasks.back();
  const std::string entry = entry_of(task.name);
  switch (action.kind) {
    case ActionKind::kMakeFile:
      return world_.flights.note_step(*process.job, entry, Step::kTemporary);
    case ActionKind::kFinish:
      world_.flights.note_step(*process.job, entry, Step::kPart);
      world_.names.at(task.name).is_published = true;
      world_.flights.finished(*process.job, entry);
      return end_build(process);
    case ActionKind::kReturn:
      return fail_by_return(process, task);
    case ActionKind::kClear:
      return fail_by_clearing(process, task);
    case ActionKind::kLoop:
      return loop(process, task);
    case ActionKind::kRemove:
      world_.names.at(task.name).begun_by.erase(process.job);
      return end_build(process);
    case ActionKind::kNest:
      return nest(process, action.number % kNames);
    default:
      return;
  }
}

void Model::nest(ModelProcess& process, std::size_t name) {
  const bool is_known = std::any_of(process.tasks.begin(), process.tasks.end(),
                                    [&](const Task& one) { return one.name == name; });
  if (is_known) return;
  process.tasks.push_back({.name = name});
  look_up(process, process.tasks.back());
}

void Model::act(const Action& action) {
  ModelProcess& process = world_.processes.at(action.process);
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

// Verifies that the builder of a name has changed only if the old builder may be replaced.
void Model::check_builders() {
  std::array<pid_t, kNames> builders{};
  for (const FlightDescription& one : world_.flights.describe()) {
    if (!one.builder_job.empty())
      builders.at(static_cast<std::size_t>(one.path.at(7) - '0')) = one.builder;
  }
  for (std::size_t name = 0; name < kNames; ++name) {
    NameState& state = world_.names.at(name);
    const ModelProcess* const before = world_.find(state.builder);
    const bool is_gone = before == nullptr || !before->is_alive || before->is_stopped ||
                         state.is_published || !state.begun_by.contains(before->job) ||
                         state.builder_may_be_replaced;
    if (builders.at(name) == state.builder) continue;
    if (!is_gone && builders.at(name) != 0) {
      fault("name " + std::to_string(name) + " has a second builder while the first goes on");
    }
    if (state.builder != 0)
      state.released.insert(state.builder);  // the old builder may still build
    state.builder = builders.at(name);
    state.builder_may_be_replaced = false;
  }
}

// Verifies that each process that was released without the name has a reason to build.
void Model::check_released() {
  for (ModelProcess& process : world_.processes) {
    for (Task& task : process.tasks) {
      if (task.state != Task::State::kWaits || !*task.is_answered || task.is_excused) continue;
      const NameState& state = world_.names.at(task.name);
      const bool is_builder = state.builder == process.pid;
      const bool has_a_reason =
          state.is_published || task.is_interrupted || task.deadline <= world_.now || is_builder ||
          !process.is_alive || process.is_stopped || world_.now < state.failed_until ||
          world_.closes_cycle(process, task.name) || state.builder == 0 ||
          !state.begun_by.contains(process.job) ||  // the process's job has removed the directory
          works_for(process.lineage, state.builder) || world_.works_for_stopped(process);
      if (!has_a_reason) {
        fault("process " + std::to_string(process.pid - kFirstPid) + " was released from name " +
              std::to_string(task.name) + " without a reason");
      }
      task.is_excused = true;
      if (!is_builder) world_.names.at(task.name).released.insert(process.pid);
    }
  }
}

// Runs the checks of the event loop, which replace stopped and dead builders.
void Model::tend() {
  for (NameState& state : world_.names) {
    const ModelProcess* const builder = world_.find(state.builder);
    if (builder != nullptr && (builder->is_stopped || !builder->is_alive))
      state.builder_may_be_replaced = true;
  }
  world_.loop.run_all();
  check_builders();
  note_failures(0, false);
  check_released();
}

// Processes all events, then verifies that each name that a process waits for has a living builder.
void Model::check_waits() {
  for (std::size_t at = 0; at < kProcesses; ++at)
    tend();  // each call replaces one stopped builder per name
  for (const ModelProcess& process : world_.processes) {
    if (!process.is_alive || process.tasks.empty()) continue;
    const Task& task = process.tasks.back();
    if (task.state != Task::State::kWaits || *task.is_answered) continue;
    const NameState& state = world_.names.at(task.name);
    const ModelProcess* const builder = world_.find(state.builder);
    if (builder == nullptr || !builder->is_alive || builder->is_stopped ||
        !state.begun_by.contains(builder->job)) {
      fault("process " + std::to_string(process.pid - kFirstPid) + " waits for name " +
            std::to_string(task.name) + ", which nobody builds");
    } else if (world_.closes_cycle(process, task.name, World::Kin::kDoesNotCount)) {
      fault("process " + std::to_string(process.pid - kFirstPid) + " waits for itself");
    }
  }
}

// Lets all processes continue and finish their builds, and verifies that none is left waiting.
void Model::drain() {
  for (std::size_t at = 0; at < world_.processes.size(); ++at) act({ActionKind::kContinue, at, 0});
  for (int round = 0; round < 100; ++round) {
    for (std::size_t at = 0; at < world_.processes.size(); ++at) {
      if (!world_.processes.at(at).tasks.empty()) act({ActionKind::kProceed, at, 0});
      act({ActionKind::kFinish, at, 0});
    }
    pass(std::chrono::seconds(5));  // Flights gets no event when a builder stops
    tend();
  }
  for (const ModelProcess& process : world_.processes) {
    if (process.is_alive && !process.tasks.empty()) {
      fault("process " + std::to_string(process.pid - kFirstPid) + " never returns from name " +
            std::to_string(process.tasks.back().name));
    }
  }
}

std::string Model::run(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    act(action);
    check_builders();
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
  return Model(jobs, counters).run(actions);
}

}  // namespace cacheshim::flights_model
