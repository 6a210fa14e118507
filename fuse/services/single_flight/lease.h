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

// Lookups by one call sequence, such as stat(2) and open(2), follow each other within this time.
inline constexpr std::chrono::milliseconds kFlightApproach{20};

// The right to build one name, and the requests that wait for the name. Not thread-safe: part of LeaseTable, guarded by
// its lock.
struct Lease {
  using Waits = std::list<std::shared_ptr<FlightWait>>;

  // The charge for a lease. The builder's user pays it or, until a process of this mount becomes the builder, the user
  // whose request added the lease.
  struct Payment {
    static Result<Payment> take(UserAccount* account);
    Charge lease;
    Charge descriptors;
  };

  // Makes the request's process the builder, and assumes that it has waited for the lease (lookups_of_wait). `pidfd`: a
  // descriptor of this process.
  void set_builder(const LeaseRequest& request, UniqueFd pidfd, FlightTime now);

  bool is_led_by_thread_of(const LeaseRequest& request) const {
    return leader == request.process() && thread.pid == request.thread;
  }
  // Whether one of these processes builds the name, with the lease or without.
  bool is_built_by(const Lineage& lineage) const;
  // Whether the process or a descendant of it waits for the name.
  bool is_awaited_by(const Process& process) const;
  // Returns the longest time that a process of a user other than `uid` has waited since the builder
  // got the lease.
  FlightTime::duration longest_wait_of_others(FlightTime now) const;

  // ---- Signs that the build has failed although its process continues (docs/single-flight.md)

  // Whether the builder's thread looks the name up in a further call without having built: its last lookup is more than
  // kFlightApproach ago, and its job has begun nothing in the entry since the thread became the builder. False if
  // is_entry.
  bool is_returned_to(const LeaseRequest& request, FlightTime now) const;
  // Counts a lookup by the builder's thread. Returns true if that thread has looked the name up so
  // often that it cannot be building.
  bool count_lookup(const LeaseRequest& request, FlightTime now);

  std::optional<Process> leader;
  bool is_others = false;  // granted by another daemon: this daemon does not know the builder
  std::shared_ptr<Job> job;  // the builder's job
  Process thread;
  std::string entry = {};  // this and `rule`: as in LeaseRequest
  const void* rule = nullptr;
  bool is_entry = false;
  // If is_entry: the builder's work, and the time of the next check in /proc.
  BuilderActivity activity;
  FlightTime next_check;
  FlightTime since;  // the time at which the builder got the lease
  uid_t uid = 0;     // the builder's user
  // The part of the time after `since` for which the user has been charged (FruitlessUsers).
  FlightTime::duration charged{0};
  // Whether, since the builder got the lease, its job has changed a file in the entry's directory
  // (has_begun), and whether it has made a part of the entry (has_part).
  bool has_begun = false;
  bool has_part = false;
  int lookups = 0;  // the lookups by `thread` since it became the builder
  FlightTime last_lookup;  // the time of the last lookup by `thread`; initially the time at which it became the builder
  // How many of the next lookups by `thread` may belong to the call in which it has waited for the lease.
  int lookups_of_wait = 0;
  UniqueFd watched;
  std::uint64_t serial = 0;
  UniqueFd file;
  Payment payment;
  std::vector<Process> builders;  // other builders, without the lease
  Waits waits;
  std::unordered_map<const Job*, NodeIndex> placeholders;
  bool is_to_be_checked = false;
  std::set<std::shared_ptr<const Job>> finished;  // jobs that have finished the name since the last check
  // The builder's job has finished the name, and FlightTender has not checked the result yet.
  bool is_finished = false;
  bool has_exited = false;  // the builder has exited
};

// A name and, if the lease is for one job only (BuilderExclusion), that job; null if it is for all jobs.
using LeaseKey = std::pair<std::string, const Job*>;
using Leases = std::map<LeaseKey, Lease>;

// Whether a wait of `caller` for `lease` would close a cycle: the builder of `lease` waits,
// directly or through other builders, for a name that the caller or an ancestor of it builds. A
// wait of a builder's descendant counts as the builder's, because the builder may wait for its
// descendant.
bool closes_cycle(const Leases& leases, const Lineage& caller, const Lease& lease);
// Whether the process or a descendant of it waits for any name.
bool waits_for_any(const Leases& leases, const Process& process);

// The state of a lease's name in the views of the builder's job and of the waiters' jobs. It was
// determined with the lock released, so the lease may have changed since.
struct LeaseFinding {
  LeaseKey key;
  std::set<std::shared_ptr<const Job>> finished;
  std::map<std::shared_ptr<const Job>, EntryState> states;  // for the builder's job and the waiters' jobs

  // Whether the states include those of all jobs whose processes wait now.
  bool covers_waits_of(const Lease& lease) const;
  // Returns true if the processes of this job need not wait any longer.
  bool releases(const Lease& lease, const std::shared_ptr<Job>& job) const;
  // Whether the builder is done, or has given up.
  bool is_leader_done(const Lease& lease) const;
};

}  // namespace cacheshim
