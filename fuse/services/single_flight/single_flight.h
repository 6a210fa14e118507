// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/counters.h"
#include "fuse/jobs/caller.h"
#include "fuse/jobs/job.h"
#include "fuse/jobs/publish_trust.h"
#include "fuse/nodes/node_table.h"
#include "fuse/requests/remote_entries.h"
#include "fuse/services/single_flight/flights.h"
#include "store/base/store.h"
#include "store/profiles/entry_map.h"
#include "store/publish/publisher.h"

namespace cacheshim {

// Decides from the entry's profile whether a process should wait for a name that its lookup has not found, and reports
// builders' progress to Flights. Thread-safe; call with no lock held, unless a method says otherwise.
class SingleFlight {
 public:
  // All must outlive this object.
  SingleFlight(const EntryMap& entries, const Publisher& publisher, const PublishTrust& trust,
               NodeTable& nodes, Counters& counters)
      : entries_(entries),
        publisher_(publisher),
        trust_(trust),
        nodes_(nodes),
        counters_(counters) {}

  using Publishers = std::function<std::vector<std::shared_ptr<Job>>(const std::string& entry)>;

  // Starts single flight. Without this call, or if `timeout` is 0, no process waits, and the other methods do nothing.
  // `publishers` returns the jobs that are publishing the entry; it must not block. `remote` may be null; it must
  // outlive stop().
  void start(EventLoop& loop, const Store& store, std::chrono::seconds timeout,
             Publishers publishers, RemoteEntries* remote);
  PendingReplies close() const { return flights_ ? flights_->close() : PendingReplies(); }
  void reopen() const {
    if (flights_) flights_->reopen();
  }
  // Answers the waiting requests.
  void stop() {
    flights_.reset();
    beating_.reset();
    heartbeats_.reset();
  }
  // Null without single flight.
  Flights* flights() const { return flights_.get(); }
  // Whether any process is waiting for a name or building one.
  bool any() const { return flights_ && flights_->any(); }

  bool is_worth_waiting_for(const Job& job, const std::string& path) const
      REQUIRES_SHARED(job.overlay.mutex());
  LeaseRequest lease_request_of(const Caller& caller, Job& job, std::string path) const;

  // Call when a thread has opened a file. If a builder moves on to another entry that already exists, the daemon learns
  // of this only from the open.
  void note_open(const Caller& caller, Job& job, NodeIndex node) const
      EXCLUDES(job.overlay.mutex());
  // Call when an object was created, renamed or removed.
  void note_step(const Job& job, const std::string& path, bool is_removed = false) const;
  // Notifies the waiters for `path` that it has changed. `completed` is the entry that the change has completed, or "".
  void note_arrival(const Job& job, const std::string& path, const std::string& completed) const
      EXCLUDES(job.overlay.mutex());
  // Call when the job has published an entry.
  void note_published(const Job& job) const;

 private:
  LeaseFiles::Options begin_heartbeats(EventLoop& loop, const Store& store);
  std::unique_ptr<RemoteLease> seek(RemoteEntries& remote, const std::string& path,
                                    bool builds_for_all, std::function<void()> on_settled) const;
  EntryState inspect(const Job& job, const std::string& path) const EXCLUDES(job.overlay.mutex());

  const EntryMap& entries_;
  const Publisher& publisher_;
  const PublishTrust& trust_;
  NodeTable& nodes_;
  Counters& counters_;
  // Both are null if all daemons of the store are on this machine.
  std::unique_ptr<Heartbeats> heartbeats_;
  std::unique_ptr<EventLoop::Task> beating_;
  std::unique_ptr<Flights> flights_;  // uses heartbeats_
};

}  // namespace cacheshim
