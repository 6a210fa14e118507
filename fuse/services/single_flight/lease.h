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
#include "fuse/limits/user_limits.h"
#include "fuse/nodes/node_ref.h"
#include "fuse/services/single_flight/builder_work.h"
#include "fuse/services/single_flight/flight_wait.h"

namespace cacheshim {

// Lookups by one sequence of calls, such as stat(2) and then open(2), follow each other within this time.
inline constexpr std::chrono::milliseconds kFlightApproach{20};

// The right to build one name, and the requests that wait for the name. Not thread-safe: part of LeaseTable, guarded by
// its lock.
struct Lease {
  using Waits = std::list<std::shared_ptr<FlightWait>>;

  // The charge for a lease. The builder's user pays it. Until a process of this mount becomes the builder, the user
  // whose request added the lease pays it.
  struct LimitCharges {
    static Result<LimitCharges> take(UserAccount* account);
    Charge lease;
    Charge descriptors;
  };

  // Makes the request's process the builder. Assumes that the process has waited for the lease (lookups_of_wait).
  // `pidfd`: a pidfd of the process.
  void set_builder(const LeaseRequest& request, UniqueFd pidfd, FlightTime now);

  bool is_built_by_thread_of(const LeaseRequest& request) const {
    return builder == request.process() && thread.pid == request.thread;
  }
  // Whether one of these processes is building the name, with or without the lease.
  bool is_built_by(const Lineage& lineage) const;
  // Whether the process, or one of its descendants, waits for the name.
  bool is_awaited_by(const Process& process) const;
  // Returns the longest time that a process of a user other than `uid` has waited since the builder
  // got the lease.
  FlightTime::duration longest_wait_of_others(FlightTime now) const;

  // ---- Signs that the build has failed although the builder's process is still running (docs/single-flight.md)

  // Whether the request shows that the builder's thread has come back to the name without having built it: the thread's
  // last lookup is more than kFlightApproach ago, and the thread's job has not changed the entry's directory since the
  // thread became the builder. False if is_entry.
  bool is_returned_to(const LeaseRequest& request, FlightTime now) const;
  // Counts a lookup by the builder's thread. Returns true if the thread has looked up the name so often that it cannot
  // be building it.
  bool count_lookup(const LeaseRequest& request, FlightTime now);

  std::optional<Process> builder;
  bool is_held_by_other_daemon =
      false;  // another daemon has granted the lease: this daemon does not know the builder
  // The search for the entry on other machines, and then this machine's right to build it; may be null.
  std::unique_ptr<RemoteLease> remote;
  bool is_sought = false;  // FlightTender has not seen yet that `remote` is settled
  // The request that added the lease, while the lease is held elsewhere and the request does not wait yet: its process
  // becomes the builder if no other process waits.
  std::optional<LeaseRequest> candidate;
  // Whether no process of this mount may become the builder yet.
  bool is_held_elsewhere() const { return is_held_by_other_daemon || is_sought; }
  std::shared_ptr<Job> job;  // the builder's job
  Process thread;
  std::string entry = {};  // `entry` and `rule`: as in LeaseRequest
  const void* rule = nullptr;
  bool is_entry = false;
  // If is_entry: the builder's work, and when to read it from /proc again.
  BuilderActivity activity;
  FlightTime next_check;
  FlightTime since;  // the time at which the builder got the lease
  uid_t uid = 0;     // the builder's user
  // The time, counted from `since`, for which the user has already been charged (FruitlessUsers).
  FlightTime::duration charged{0};
  // What the builder's job has done since the builder got the lease. has_begun: it has changed a file in the entry's
  // directory. has_part: it has made a part of the entry.
  bool has_begun = false;
  bool has_part = false;
  int lookups = 0;  // the lookups by `thread` since it became the builder
  FlightTime last_lookup;  // the time of the last lookup by `thread`; initially the time at which it became the builder
  // How many of the next lookups by `thread` may still belong to the call that waited for the lease.
  int lookups_of_wait = 0;
  UniqueFd watched;
  std::uint64_t serial = 0;
  UniqueFd file;
  LimitCharges limit_charges;
  std::vector<Process> builders;  // the processes that build without the lease
  Waits waits;
  std::unordered_map<const Job*, NodeIndex> placeholders;
  bool is_to_be_checked = false;
  std::set<std::shared_ptr<const Job>> finished;  // the jobs that have finished the name since the last check
  // Whether the builder's job has finished the name but FlightTender has not checked the result yet.
  bool is_finished = false;
  bool has_exited = false;  // whether the builder has exited
};

// A name, and the job if the lease is for only one job (BuilderExclusion); null if the lease is for all jobs.
using LeaseKey = std::pair<std::string, const Job*>;
using Leases = std::map<LeaseKey, Lease>;

// Whether a wait of `caller` for `lease` would close a cycle: whether the builder of `lease` waits, directly or through
// other builders, for a name that the caller or one of its ancestors is building. If a builder's descendant waits, the
// builder counts as waiting, because it may be waiting for the descendant.
bool closes_cycle(const Leases& leases, const Lineage& caller, const Lease& lease);
// Whether the process, or one of its descendants, waits for any name.
bool waits_for_any(const Leases& leases, const Process& process);

// The state of a lease's name in the views of the builder's job and of the waiters' jobs. The states are determined
// with the lock released, so the lease may have changed since then.
struct LeaseFinding {
  LeaseKey key;
  std::set<std::shared_ptr<const Job>> finished;
  std::map<std::shared_ptr<const Job>, EntryState> states;  // for the builder's job and the waiters' jobs

  // Whether `states` covers all jobs whose processes are waiting now.
  bool covers_waits_of(const Lease& lease) const;
  // Whether this job's processes need not wait any longer.
  bool releases(const Lease& lease, const std::shared_ptr<Job>& job) const;
  // Whether the builder has finished or given up.
  bool is_builder_done(const Lease& lease) const;
};

}  // namespace cacheshim
