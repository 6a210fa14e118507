// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/single_flight/single_flight.h"

#include <spdlog/spdlog.h>

#include <cstring>
#include <utility>

#include "store/sys/file_system.h"
#include "store/sys/paths.h"

namespace cacheshim {
namespace {

// Whether the profile defines when the entry is complete. If not, a wait for a name ends as soon as
// the name exists.
bool can_tell(const EntryRule& rule) {
  return rule.says_when_complete() || !rule.built_under.empty();
}

bool can_complete(const EntryRule& rule, std::string_view path) {
  const std::string_view name = base_name(path);
  return rule.completes(name) || rule.completes_alone(name) || rule.completes_at_end(name);
}

}  // namespace

void SingleFlight::start(EventLoop& loop, const Store& store, std::chrono::seconds timeout,
                         Publishers publishers, RemoteEntries* remote) {
  if (timeout.count() == 0) return;
  LeaseFiles::Options leases;
  if (!is_local_file_system(store.leases())) leases = begin_heartbeats(loop, store);
  const auto look = [this](const Job& job, const std::string& path) { return inspect(job, path); };
  FlightOptions options{
      .timeout = timeout,
      .leases = LeaseFiles(store.leases(), leases),
      .inspect = look,
      .publishers = std::move(publishers),
      .note_building = [](Job& job, bool builds) { job.filter.set_building(builds); }};
  if (remote != nullptr) {
    options.seek = [this, remote](const std::string& path, bool builds_for_all,
                                  std::function<void()> on_settled) {
      return seek(*remote, path, builds_for_all, std::move(on_settled));
    };
  }
  flights_ = std::make_unique<Flights>(loop, std::move(options), nodes_, counters_);
}

std::unique_ptr<RemoteLease> SingleFlight::seek(RemoteEntries& remote, const std::string& path,
                                                bool builds_for_all,
                                                std::function<void()> on_settled) const {
  const auto ref = entries_.find(path);
  return ref ? remote.seek(ref->unit(), builds_for_all, std::move(on_settled)) : nullptr;
}

// Starts writing heartbeats, for a store whose daemons may be on several machines. If the first heartbeat cannot be
// written, other daemons cannot detect the death of this machine by a missing heartbeat.
LeaseFiles::Options SingleFlight::begin_heartbeats(EventLoop& loop, const Store& store) {
  heartbeats_ = std::make_unique<Heartbeats>(store.leases(), Heartbeats::unique_name(node_name()));
  if (const Status begun = heartbeats_->beat(); !begun) {
    spdlog::warn("cannot write a heartbeat into the store: {}; if this machine dies, others wait for its builds until "
                 "the file server releases the locks",
                 std::strerror(begun.error().code()));
  }
  beating_ = std::make_unique<EventLoop::Task>(loop, "writing a heartbeat", [this](const auto&) {
    (void)heartbeats_->beat();  // if this fails, other daemons notice the missing heartbeat
    return EventLoop::Clock::now() + Heartbeats::kBeat;
  });
  beating_->wake();
  return {.heartbeats = heartbeats_.get(), .has_locks = heartbeats_->has_locks()};
}

// Accepts names of class `flight` in a profile whose entries may be published early: the directory of an entry that is
// built elsewhere and renamed into place, or a name in an entry whose directory is in the caller's layer. If the layer
// does not have the directory, possibly no process is going to build the name.
bool SingleFlight::is_worth_waiting_for(const Job& job, const std::string& path) const {
  if (!flights_ || !row_of(entries_.class_of(path)).is_awaited) return false;
  const auto ref = entries_.find(path);
  if (!ref || !ref->rule->is_directory() || !ref->profile->may_publish_early()) return false;
  if (ref->is_entry_directory()) return true;
  if (!job.overlay.has_own_directory(std::string(ref->entry))) return false;
  // After an entry is complete, processes add only names that can complete it, so no other name is worth a wait.
  if (!can_tell(*ref->rule) || can_complete(*ref->rule, path)) return true;
  return !publisher_.is_complete_in_base(job.overlay, *ref) &&
         !(ref->rule->says_when_complete() && publisher_.is_complete(job.overlay, *ref, false));
}

LeaseRequest SingleFlight::lease_request_of(const Caller& caller, Job& job,
                                            std::string path) const {
  const pid_t thread = caller.tid;
  const bool publishes =
      job.policy.effective() == PublishPolicy::kComplete && trust_.may_publish(caller);
  LeaseRequest request{std::move(path), job.shared_from_this(), publishes, lineage_of(thread), thread};
  request.uid = caller.uid;
  const auto ref = entries_.find(request.path);
  if (!ref) return request;
  request.entry = ref->entry;
  if (ref->rule->one_by_one) request.rule = ref->rule;
  return request;
}

void SingleFlight::note_open(const Caller& caller, Job& job, NodeIndex node) const {
  if (!flights_ || !flights_->any()) return;
  const auto path = [&] {
    const ReaderLock lock(job.overlay.mutex());
    return nodes_.path(node);
  }();
  if (!path || !row_of(entries_.class_of(*path)).is_awaited) return;
  const LeaseRequest request = lease_request_of(caller, job, *path);
  if (!request.lineage.empty()) flights_->note_open(request);
}

void SingleFlight::note_step(const Job& job, const std::string& path, bool is_removed) const {
  using Step = BuildStep;
  if (!flights_ || !flights_->any()) return;
  const auto ref = entries_.find(path);
  if (!ref || !ref->rule->is_directory() || ref->is_entry_directory()) return;
  const bool is_beside = entries_.is_beside_entry(path);
  // Counts the removal of a temporary file or directory in the entry's directory, but not of files inside a temporary
  // directory.
  const bool is_cleared =
      is_removed && entries_.is_scratch(path) && ref->rest.find('/') == ref->rest.npos;
  if (is_removed && !is_cleared) return;
  const Step made = is_beside ? Step::kTemporary : Step::kPart;
  flights_->note_step(job, std::string(ref->entry), is_cleared ? Step::kCleared : made);
}

EntryState SingleFlight::inspect(const Job& job, const std::string& path) const {
  const ReaderLock lock(job.overlay.mutex());
  EntryState state;
  job.overlay.expect_in_base(path);
  state.has_name = static_cast<bool>(job.overlay.find(path));
  const auto ref = entries_.find(path);
  if (!ref) return state;
  // An entry that is built elsewhere does not exist until it is complete, so it always counts as begun.
  state.is_begun =
      ref->is_entry_directory() || job.overlay.has_own_directory(std::string(ref->entry));
  state.completes = ref->is_entry_directory() || can_complete(*ref->rule, path);
  state.is_complete =
      can_tell(*ref->rule) ? publisher_.is_complete_in_base(job.overlay, *ref) : state.has_name;
  return state;
}

void SingleFlight::note_arrival(const Job& job, const std::string& path,
                                const std::string& completed) const {
  if (!flights_) return;
  if (!completed.empty()) return flights_->finished(job, completed);
  const auto ref = entries_.find(path);
  if (!ref || !ref->rule->is_directory()) return;
  // Publishing::note_built() records objects only for jobs that publish complete entries.
  const bool notes_unlock = job.policy.wanted() == PublishPolicy::kComplete;
  const bool is_end_seen =
      ref->rule->says_when_complete() || (!ref->rule->built_under.empty() && notes_unlock);
  // A file that is added to a complete entry does not complete it again.
  const auto is_addition = [&] {
    if (!row_of(entries_.class_of(path)).is_awaited) return false;
    const ReaderLock lock(job.overlay.mutex());
    return publisher_.is_complete_in_base(job.overlay, *ref);
  };
  if (!is_end_seen || is_addition()) flights_->finished(job, path);
}

void SingleFlight::note_published(const Job& job) const {
  if (!flights_) return;
  for (const uid_t uid : job.views.owners()) flights_->note_published(uid);
}

}  // namespace cacheshim
