// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/counters.h"
#include "fuse/nodes/node_table.h"
#include "fuse/requests/pending_replies.h"
#include "fuse/services/single_flight/flight_tender.h"
#include "fuse/services/single_flight/flight_types.h"
#include "fuse/services/single_flight/flight_wait.h"
#include "fuse/services/single_flight/lease_table.h"
#include "store/threads/event_loop.h"

namespace cacheshim {

// Single flight: one process builds an entry, and the others wait for it.
//
// The first process that misses a name gets the name's lease, together with the answer that the name is absent, and
// becomes the builder. Other processes wait until their view has the name in a complete entry. If the builder has
// exited, has been stopped, or has removed its entry's directory, the process that has waited longest becomes the
// builder. If the builder keeps running but its build has evidently failed, the waiters build the name themselves, and
// so do all processes that look it up during the next LeaseTable::kFailedFor. Their builds will probably fail too, so
// waiting would be useless. A waiter that has waited for `timeout`, or is interrupted, builds the entry itself. A
// process that builds the entry sees the job's files as they are, never a placeholder.
//
// The same applies to the name of an entry that is built elsewhere and renamed into place; its placeholder is a
// directory. During the build, nothing changes at the entry's own path, so the daemon watches the builder as long as it
// holds the lease. The build counts as failed when the builder's thread has exited, or when the builder has been idle
// for BuilderActivity::kIdleFor.
//
// If a user's builders have made other users' processes wait in vain for a total of `timeout`, processes of other jobs
// stop waiting for that user's builds for a while (BuilderExclusion). The user's leases pass to other processes.
//
// Descendants of a builder count as the builder. A process does not wait if its wait would close a cycle, of any
// length, of processes that wait for each other.
//
// No process waits in a lookup, because the kernel holds the directory's lock during a lookup. A waiter's lookup
// returns a placeholder node, and the GETATTR or OPEN request that follows can wait. Every such wait ends with ESTALE,
// which makes the kernel look up the name again and find the real result.
//
// This class answers lease requests. LeaseTable holds the leases, and FlightTender ends waits on the loop's thread.
//
// Thread-safe. Call with no lock held; callbacks run with no lock held unless they say otherwise.
class Flights {
 public:
  enum class Advice {
    // The caller now holds the lease. It must repeat the lookup, because the name may have appeared in the meantime,
    // and then build.
    kBuildWithLease,
    // The caller builds without a new lease: it is already building, has waited long enough, must not wait
    // (docs/single-flight.md), or cannot get a lease.
    kBuild,
    kWait,  // return `placeholder`
  };
  struct Answer {
    Advice advice;
    NodeIndex placeholder;  // the lookup count of this node already includes this lookup
  };

  Flights(EventLoop& loop, FlightOptions options, NodeTable& nodes, Counters& counters);
  ~Flights();  // answers the waiters

  // Call when the lookup of the request's name has found nothing. Returns what the process must do.
  Answer request_lease(const LeaseRequest& request) EXCLUDES(table_.mutex);
  // Call for a request on a placeholder. Delays the answer until the wait ends; answers immediately if there is nothing
  // to wait for.
  void wait(NodeIndex placeholder, const std::shared_ptr<FlightWait>& wait) EXCLUDES(table_.mutex);
  // Call when the thread has opened an existing name of class `flight`. If the thread builds only one entry at a time,
  // the open shows that it has given up its builds in other entries.
  void note_open(const LeaseRequest& request) EXCLUDES(table_.mutex);
  // Call when the builder need not build, because the repeated lookup has found the name.
  void give_up(const LeaseRequest& request) EXCLUDES(table_.mutex);
  // Whether any process is building a name or waiting for one. Takes no lock.
  bool any() const { return table_.any(); }
  void note_step(const Job& job, const std::string& entry, BuildStep step) EXCLUDES(table_.mutex);
  // Call when the job has finished building `path`, a name or an entry's directory: `path` is
  // complete and, if the job may publish it, published.
  void finished(const Job& job, const std::string& path) EXCLUDES(table_.mutex);
  // Call when a job of this user has published an entry.
  void note_published(uid_t uid) EXCLUDES(table_.mutex);
  std::vector<FlightDescription> describe() const EXCLUDES(table_.mutex);
  std::vector<uid_t> excluded_users() const EXCLUDES(table_.mutex);  // see BuilderExclusion
  // Call before the mount is removed. Ends all waits: the waiters, and until reopen() all other processes, build the
  // entries themselves. Returns the replies to the waiters.
  PendingReplies close() EXCLUDES(table_.mutex);
  void reopen() EXCLUDES(table_.mutex);

 private:
  Answer decide(const LeaseRequest& request) REQUIRES(table_.mutex);
  Answer wait_for(LeaseTable::Iterator lease, const LeaseRequest& request) REQUIRES(table_.mutex);
  Answer wait_for_publisher(std::shared_ptr<Job> publisher, const LeaseRequest& request) REQUIRES(table_.mutex);
  Answer open_lease(const LeaseRequest& request, bool has_waited) REQUIRES(table_.mutex);
  bool begin_wait(NodeIndex placeholder, const std::shared_ptr<FlightWait>& wait)
      REQUIRES(table_.mutex);
  void fail_others_of(const LeaseRequest& request) REQUIRES(table_.mutex);
  bool note_finished(const Job& job, const std::string& path) REQUIRES(table_.mutex);
  EventLoop::Clock::time_point tend(const std::vector<std::uint64_t>& ended)
      EXCLUDES(table_.mutex);

  const FlightOptions options_;
  LeaseTable table_;
  FlightTender tender_;
  Counters& counters_;
  bool closed_ GUARDED_BY(table_.mutex) = false;
  EventLoop::Task task_;  // keep last: it uses the other members
};

}  // namespace cacheshim
