// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/counters.h"
#include "common/unique_fd.h"
#include "fuse/jobs/job.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/single_flight/flights.h"
#include "tests/unit/models/flights_model.h"

namespace cacheshim::flights_model {

inline constexpr std::size_t kNames = 3;
inline constexpr pid_t kFirstPid = 1 << 23;  // above every real pid (PID_MAX_LIMIT)
inline constexpr std::chrono::milliseconds kTimeout = std::chrono::minutes(2);

inline std::string path_of(std::size_t name) {
  return "fam/KEY" + std::to_string(name) + "/kernel.json";
}
inline std::string entry_of(std::size_t name) { return "fam/KEY" + std::to_string(name); }

// A name that a process looks up, waits for or builds. A process has a stack of tasks: during the
// build of one name, it may look up another.
struct Task {
  enum class State : std::uint8_t { kLooksUp, kWaits, kBuilds };
  std::size_t name;
  State state = State::kLooksUp;
  // Both pointers are null unless the process waits.
  std::shared_ptr<FlightWait> wait = {};
  std::shared_ptr<bool> is_answered = {};
  Lineage lineage = {};  // the process's lineage when the wait began
  std::chrono::milliseconds deadline{0};
  bool is_interrupted = false;
  bool is_excused = false;  // the process may build without the lease after this wait
};

struct ModelProcess {
  pid_t pid = 0;
  Lineage lineage;
  Job* job = nullptr;
  std::vector<UniqueFd> watched;  // the write ends of pipes, closed when the process ends
  bool is_alive = true;
  bool is_stopped = false;
  std::vector<Task> tasks;
};

struct NameState {
  bool is_published = false;
  pid_t builder = 0;
  // True if the builder has exited, been stopped, failed or given up since the last check_builders().
  bool builder_may_be_replaced = false;
  std::set<const Job*> begun_by;  // the jobs whose layers have the entry's directory
  std::set<pid_t> released;       // processes that may build without the lease
  std::chrono::milliseconds failed_until{0};
};

bool works_for(const Lineage& lineage, pid_t pid);

// The processes, the names and the clock of the model, and a Flights object that uses these
// processes and this clock instead of the system's.
struct World {
  World(const std::vector<Job*>& jobs, Counters& counts);

  // Returns null for a process that does not belong to the model.
  ModelProcess* find(pid_t pid);
  LeaseRequest lease_request_of(const ModelProcess& process, std::size_t name) const;
  // Returns true if the builder of `name` waits, directly or through other builders, for the
  // process. With Kin::kCounts, a wait of a builder's descendant counts too.
  enum class Kin : std::uint8_t { kCounts, kDoesNotCount };
  bool closes_cycle(const ModelProcess& process, std::size_t name, Kin kin = Kin::kCounts) const;
  // Returns true if the process or one of its ancestors is stopped. The ancestor may be a builder that was stopped
  // before a check released the waiting process.
  bool works_for_stopped(const ModelProcess& process) {
    return std::any_of(process.lineage.begin(), process.lineage.end(),
                       [&](const Process& one) { return find(one.pid)->is_stopped; });
  }

  Counters& counters;
  NodeTable nodes;
  std::chrono::milliseconds now{0};
  std::array<NameState, kNames> names;
  std::vector<ModelProcess> processes;
  EventLoop loop;  // not started: Model::tend() runs its tasks
  Flights flights;
};

}  // namespace cacheshim::flights_model
