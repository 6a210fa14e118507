// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/counters.h"
#include "common/unique_fd.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/single_flight/builder_exclusion.h"
#include "fuse/services/single_flight/failed_builds.h"
#include "fuse/services/single_flight/lease.h"
#include "fuse/services/single_flight/past_waits.h"
#include "store/threads/event_loop.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// All leases and their lock, shared by Flights and FlightTender. Passes leases from one builder to the next, and ends
// them.
//
// Call with `mutex` held, unless a function says otherwise. A function that ends waits collects the requests to answer.
// Take them with take_answers() before you release the lock, and call send_answers() after you have released it.
class LeaseTable {
 public:
  using Iterator = Leases::iterator;

  // Each lease takes two descriptors. If a process that has this number of leases needs another one, it loses the
  // oldest one that has no waiters.
  static constexpr std::size_t kMostLeasesOfProcess = 64;
  static constexpr std::size_t kMostLeases = 1024;  // beyond that, processes build without a lease
  static constexpr std::chrono::seconds kFailedFor{60};

  // All must outlive the table. `tender` runs when a builder has exited, with the serial of the lease, and when a
  // process becomes the builder of an entry that is built elsewhere.
  LeaseTable(const FlightOptions& options, NodeTable& nodes, Counters& counters,
             const EventLoop::Task& tender)
      : exclusion(options),
        options_(options),
        nodes_(nodes),
        counters_(counters),
        tender_(tender) {}

  // any(): whether there are leases. remembers_failures(): whether there are names whose builds have failed. Neither
  // takes a lock.
  bool any() const { return count_ != 0; }
  bool remembers_failures() const { return remembers_failures_; }

  // The find functions return leases.end() if there is no such lease. A lease for all jobs takes precedence over a
  // lease of one job. A process that may build for all jobs (BuilderExclusion) never waits for a process that builds
  // only for its own job, even if both are in the same job.
  Iterator find(const LeaseRequest& request) REQUIRES(mutex);
  Iterator find_by_placeholder(NodeIndex placeholder) REQUIRES(mutex);
  Iterator find_by_serial(std::uint64_t serial) REQUIRES(mutex);

  // Returns a job that is publishing the request's entry, other than the request's own job; null if there is none.
  std::shared_ptr<Job> other_publisher(const LeaseRequest& request) const REQUIRES(mutex);
  // Whether the builder's job is publishing the entry, or has finished it but FlightTender has not checked the result
  // yet. While this is so, the build does not count as failed if the builder exits, becomes idle or begins another
  // entry.
  bool is_settling(const Lease& lease) const REQUIRES(mutex);

  // Returns true if the process may get another lease. If it already has kMostLeasesOfProcess leases, first ends the
  // oldest one that has no waiters.
  bool make_room(const Process& builder) REQUIRES(mutex);
  // Adds a lease that no process holds yet. `charges`: from the request's user.
  Iterator add(LeaseKey key, const LeaseRequest& request, Lease::LimitCharges charges)
      REQUIRES(mutex);
  // Makes the request's process the builder. `pidfd`: a pidfd of the process. If threads or descendants of the process
  // already wait for the name, ends their waits.
  void make_builder(Iterator lease, const LeaseRequest& request, UniqueFd pidfd) REQUIRES(mutex);
  // Charges the builder's user for the waits so far (BuilderExclusion), and makes the process that has waited longest
  // the next builder. Skips processes that have exited, processes whose user has reached a limit and, if the lease is
  // for all jobs, processes that may not build for all. The waits of skipped processes end, and these processes build
  // the name without the lease. If no waiter is left, makes Lease::candidate the builder, or ends the lease.
  void hand_over(Iterator lease) REQUIRES(mutex);
  // Ends a wait. `as_builder`: whether the waiting process will then build the name itself.
  void release(Lease& lease, Lease::Waits::iterator wait, bool as_builder) REQUIRES(mutex);
  // Ends a lease and its waits.
  void erase(Iterator lease) REQUIRES(mutex);
  // As erase(), for a build that has failed: for the next kFailedFor, no process waits for this name.
  void fail(Iterator lease) REQUIRES(mutex);
  // Forgets the failed builds of `path` and of the names below it.
  void forget_failures(const std::string& path) REQUIRES(mutex);

  // Call for a request on a placeholder that does not wait, for example because the lease has ended. The request fails
  // with ESTALE, as after a wait (PastWaits).
  void note_unwaited(NodeIndex placeholder, LeaseRequest request) REQUIRES(mutex);
  // Returns the placeholder of the lease's name in the job's view, and counts one lookup of the placeholder by the
  // kernel.
  NodeIndex placeholder_of(Iterator lease, Job* job) REQUIRES(mutex);
  FlightAnswers take_answers() REQUIRES(mutex) { return std::exchange(answers_, {}); }

  mutable Mutex mutex{LockRank::kLeaseTable};
  Leases leases GUARDED_BY(mutex);
  PastWaits past GUARDED_BY(mutex);
  FailedBuilds failed GUARDED_BY(mutex);
  BuilderExclusion exclusion GUARDED_BY(mutex);

 private:
  void note_building(const std::shared_ptr<Job>& job) const REQUIRES(mutex);

  const FlightOptions& options_;
  NodeTable& nodes_;
  Counters& counters_;
  const EventLoop::Task& tender_;
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> remembers_failures_{false};
  std::unordered_map<NodeIndex, LeaseKey> placeholders_ GUARDED_BY(mutex);
  std::unordered_map<NodeIndex, std::string> ended_
      GUARDED_BY(mutex);  // the names of earlier placeholders
  std::map<std::uint64_t, LeaseKey> serials_ GUARDED_BY(mutex);
  std::uint64_t next_serial_ GUARDED_BY(mutex) = 1;
  FlightAnswers answers_ GUARDED_BY(mutex);
};

}  // namespace cacheshim
