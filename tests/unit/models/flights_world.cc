// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/models/flights_world.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace cacheshim::flights_model {
namespace {

// Returns a descriptor that, like a pidfd, becomes readable for epoll(7) when the process ends.
UniqueFd watch(ModelProcess& process) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return {};
  process.watched.emplace_back(ends[1]);
  return UniqueFd(ends[0]);
}

}  // namespace

bool works_for(const Lineage& lineage, pid_t pid) {
  return std::any_of(lineage.begin(), lineage.end(),
                     [&](const Process& one) { return one.pid == pid; });
}

World::World(const std::vector<Job*>& jobs, Counters& counts)
    : counters(counts),
      flights(loop, {.timeout = kTimeout,
               .leases = LeaseFiles(-1),
               .inspect =
                   [this](const Job& job, const std::string& path) {
                     const std::size_t name = static_cast<std::size_t>(path.at(7) - '0');
                     const NameState& state = names.at(name);
                     return EntryState{.has_name = state.is_published,
                                       .is_complete = state.is_published,
                                       .is_begun = state.begun_by.contains(&job),
                                       .completes = true};
                   },
               .now = [this] { return FlightTime() + now; },
               .watch =
                   [this](const Process& watched) {
                     ModelProcess* const process = find(watched.pid);
                     return process != nullptr && process->is_alive ? watch(*process) : UniqueFd();
                   },
               .is_stopped =
                   [this](const Process& asked) {
                     const ModelProcess* const process = find(asked.pid);
                     return process != nullptr && process->is_alive && process->is_stopped;
                   }},
              nodes, counts) {
  for (std::size_t at = 0; at < kProcesses; ++at) {
    ModelProcess process;
    process.pid = kFirstPid + static_cast<pid_t>(at);
    process.lineage = {{process.pid, 1}};
    // The last process is a child of the first.
    if (at == kProcesses - 1) process.lineage.push_back({kFirstPid, 1});
    process.job = jobs.at(at == kProcesses - 1 ? 0 : at % jobs.size());
    processes.push_back(std::move(process));
  }
}

ModelProcess* World::find(pid_t pid) {
  const auto at = static_cast<std::size_t>(pid - kFirstPid);
  return pid >= kFirstPid && at < processes.size() ? &processes[at] : nullptr;
}

LeaseRequest World::lease_request_of(const ModelProcess& process, std::size_t name) const {
  LeaseRequest request{path_of(name), process.job->shared_from_this(), /*publishes=*/true, process.lineage,
                       process.pid};
  request.entry = entry_of(name);
  return request;
}

bool World::closes_cycle(const ModelProcess& process, std::size_t name, Kin kin) const {
  std::set<pid_t> builders{names.at(name).builder};
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (const ModelProcess& other : processes) {
      if (other.tasks.empty() || other.tasks.back().state != Task::State::kWaits) continue;
      const Task& waits = other.tasks.back();
      if (*waits.is_answered) continue;
      const bool works_for_one =
          std::any_of(waits.lineage.begin(), waits.lineage.end(), [&](const Process& one) {
            return builders.contains(one.pid) && (kin == Kin::kCounts || one.pid == other.pid);
          });
      if (!works_for_one) continue;
      has_grown |= builders.insert(names.at(waits.name).builder).second;
    }
  }
  return std::any_of(process.lineage.begin(), process.lineage.end(), [&](const Process& one) {
    return builders.contains(one.pid) && (kin == Kin::kCounts || one.pid == process.pid);
  });
}

}  // namespace cacheshim::flights_model
