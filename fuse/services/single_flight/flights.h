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
// exited, was stopped, or has removed its entry's directory, the process that has waited longest becomes the builder.
// If the builder continues but its build has evidently failed, all processes that wait for the name, and all that look
// it up during LeaseTable::kFailedFor, build it themselves: their builds will probably fail too. A waiter that has
// waited for `timeout`, or is interrupted, builds the entry itself. A process that builds the entry sees the job's
// files as they are, never a placeholder. The name of an entry that is built elsewhere and renamed into place is
// handled in the same way, with a directory as the placeholder. During such a build nothing changes at the entry's own
// path. So the daemon watches the builder as long as the builder holds the lease. The build has failed when the
// builder's thread has exited, or when the builder has been idle for BuilderActivity::kIdleFor.
//
// If a user's builders have made other users' processes wait in vain for a total of `timeout`, that user builds only
// for its own jobs for a while (BuilderExclusion). The leases of such a user pass to other processes.
//
// A process counts together with its descendants. A process does not wait if that would close a
// cycle, through any number of other processes.
//
// No process waits in a lookup, since the kernel holds the directory's lock during a lookup. A waiter's lookup returns
// a placeholder node, and the GETATTR or OPEN request that follows can wait. Every such wait ends with ESTALE, so that
// the kernel looks the name up again and finds the real result.
//
// This class decides what each request gets. LeaseTable holds the leases, and FlightTender ends
// waits on the loop's thread.
//
// Thread-safe. Call with no lock held; callbacks run with no lock held unless they say otherwise.
class Flights {
 public:
  enum class Advice {
    // the caller now holds the lease: it must repeat the lookup, because the name may just have appeared, and then
    // build
    kLead,
    // the caller builds without a new lease: it builds already, has waited long enough, must not
    // wait (docs/single-flight.md), or can get no lease
    kBuild,
    kWait,   // return `placeholder`
  };
  struct Answer {
    Advice advice;
    NodeIndex placeholder;  // its lookup count already includes this lookup
  };

  Flights(EventLoop& loop, FlightOptions options, NodeTable& nodes, Counters& counters);
  ~Flights();  // answers the waiters

  Answer look(const LeaseRequest& request) EXCLUDES(table_.mutex);
  // Delays the answer to a request for a placeholder; answers immediately if there is nothing to wait
  // for.
  void wait(NodeIndex placeholder, const std::shared_ptr<FlightWait>& wait) EXCLUDES(table_.mutex);
  // Call when the thread has opened an existing name of class `flight`. A thread that builds one
  // entry at a time has thereby given up its builds in other entries.
  void note_open(const LeaseRequest& request) EXCLUDES(table_.mutex);
  // Call when the builder need not build, because the name existed after all.
  void give_up(const LeaseRequest& request) EXCLUDES(table_.mutex);
  // Whether any name is being built or waited for. Takes no lock.
  bool any() const { return table_.any(); }
  void note_step(const Job& job, const std::string& entry, BuildStep step) EXCLUDES(table_.mutex);
  // Call when the job has finished building `path`, a name or an entry's directory: `path` is
  // complete and, if the job may publish it, published.
  void finished(const Job& job, const std::string& path) EXCLUDES(table_.mutex);
  // Call when a job of this user has published an entry.
  void note_published(uid_t uid) EXCLUDES(table_.mutex);
  std::vector<FlightDescription> describe() const EXCLUDES(table_.mutex);
  std::vector<uid_t> excluded_users() const EXCLUDES(table_.mutex);  // see BuilderExclusion
  // Call before the mount goes away: waiters build the entries themselves, and so does every
  // process until reopen(). Returns the replies to the waiters.
  PendingReplies close() EXCLUDES(table_.mutex);
  void reopen() EXCLUDES(table_.mutex);

 private:
  Answer advise(const LeaseRequest& request) REQUIRES(table_.mutex);
  Answer wait_for(LeaseTable::Iterator lease, const LeaseRequest& request) REQUIRES(table_.mutex);
  Answer wait_for_publisher(std::shared_ptr<Job> publisher, const LeaseRequest& request) REQUIRES(table_.mutex);
  Answer open_lease(const LeaseRequest& request) REQUIRES(table_.mutex);
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
  EventLoop::Task task_;  // keep last: it uses all the others
};

}  // namespace cacheshim
