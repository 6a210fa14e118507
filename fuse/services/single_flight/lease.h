// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/nodes/node_ref.h"
#include "fuse/services/single_flight/builder_work.h"
#include "fuse/services/single_flight/flight_wait.h"

namespace cacheshim {

// Lookups by one call sequence, such as stat(2) and open(2), follow each other within this time.
inline constexpr std::chrono::milliseconds kFlightApproach{20};

// The right to build one name, and the requests that wait for it. Not thread-safe: part of
// LeaseTable and under its lock.
struct Lease {
  using Waits = std::list<std::shared_ptr<FlightWait>>;

  // Makes the request's process the builder. `pidfd` tells its end.
  void set_builder(const LeaseRequest& request, UniqueFd pidfd, FlightTime now);

  bool is_led_by_thread_of(const LeaseRequest& request) const {
    return leader == request.process() && thread.pid == request.thread;
  }
  // Whether one of these processes builds the name, with the lease or without.
  bool is_built_by(const Lineage& lineage) const;
  // Whether the process or a descendant of it waits for the name.
  bool is_awaited_by(const Process& process) const;

  // ---- Signs that the build has failed although its process continues (docs/single-flight.md)

  // The request's thread is the builder, looks the name up again, and has made nothing meanwhile.
  bool is_returned_to(const LeaseRequest& request, FlightTime now) const;
  // Counts a lookup by the builder's thread. Returns whether it has looked the name up so often
  // that it cannot be building.
  bool count_lookup(const LeaseRequest& request, FlightTime now);

  std::optional<Process> leader;
  bool is_others = false;  // another daemon's: its builder is not known here
  Job* job = nullptr;      // the builder's
  Process thread;
  std::string entry = {};  // of the name, as is the rule: see LeaseRequest
  const void* rule = nullptr;
  bool is_entry = false;
  // For an entry: its builder's work, and the time of the next check in /proc.
  BuilderActivity activity;
  FlightTime next_check;
  FlightTime since;  // the start of its lease
  // Since the lease began: whether its job has made a file in the entry's directory, and a part of
  // the entry itself.
  bool has_begun = false;
  bool has_part = false;
  int lookups = 0;  // by that thread since the lease began
  // The last lookup by that thread since the lease began. Empty if it was waiting when it became
  // the builder: it then looks the name up once more.
  std::optional<FlightTime> last_lookup;
  UniqueFd watched;
  std::uint64_t serial = 0;
  UniqueFd file;
  std::vector<Process> builders;  // in addition to the builder
  Waits waits;
  std::unordered_map<const Job*, NodeIndex> placeholders;
  bool is_to_be_checked = false;
  std::set<const Job*> finished;  // since the last check
  // by the builder's job, and not settled yet: then nothing counts as a failure
  bool is_finished = false;
  // The expected builder, the time until which no other process may build, and the process that
  // waits for it.
  std::optional<Process> expected;
  FlightTime expected_until;
  pid_t expecting = 0;
};

// A name and, for the lease of a job that does not publish, the job.
using LeaseKey = std::pair<std::string, const Job*>;
using Leases = std::map<LeaseKey, Lease>;

// Whether a builder, such as that of `lease`, already waits for the caller. It is enough that a
// descendant of the builder does, because the builder may wait for that; or that the caller works
// for the process that is waited for.
bool closes_cycle(const Leases& leases, const Lineage& caller, const Lease& lease);
// Whether the process or a descendant of it waits for any name.
bool waits_for_any(const Leases& leases, const Process& process);
// Whether the process builds with a lease, or waits.
bool is_busy(const Leases& leases, const Process& process);

// The state of a lease's name in the views of all jobs that take part. Found with the lock
// released, so the lease may have changed since.
struct LeaseFinding {
  LeaseKey key;
  std::set<const Job*> finished;
  std::map<const Job*, EntryState> states;  // of the builder's job and of the waiters'

  // Whether a wait of this job is over.
  bool releases(const Lease& lease, const Job* job) const;
  // Whether the builder is done, or has given up.
  bool is_leader_done(const Lease& lease) const;
};

}  // namespace cacheshim
