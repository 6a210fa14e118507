// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fuse/services/single_flight/pending_call.h"
#include "fuse/vfs/filesystem.h"
#include "store/sys/paths.h"

// Single flight: which misses are worth waiting for, and the requests that wait (flights.h).
namespace cacheshim {
namespace {

// Whether the profile can tell when the entry is complete. Otherwise the name itself ends a wait for it.
bool can_tell(const EntryRule& rule) {
  return rule.says_when_complete() || !rule.built_under.empty();
}

bool can_complete(const EntryRule& rule, std::string_view path) {
  const std::string_view name = base_name(path);
  return rule.completes(name) || rule.completes_alone(name) || rule.completes_at_end(name);
}

}  // namespace

// A name of class `flight`: an entry's own directory, which is built elsewhere and gets its place by a rename; or a name
// in an entry that the caller's layer has begun: its directory is there. If nobody has begun the entry, nobody may be
// about to build the name.
bool Filesystem::is_worth_waiting_for(const Job& job, const std::string& path) const {
  if (!flights_ || entries_.class_of(path) != NameClass::kFlight) return false;
  const auto ref = entries_.find(path);
  if (!ref || !ref->rule->is_folder() || !ref->profile->may_publish_early()) return false;
  if (ref->is_entry_folder()) return true;
  if (!job.overlay.has_own_folder(std::string(ref->entry))) return false;
  // No process adds a name that is not a completing one to an entry that is complete.
  if (!can_tell(*ref->rule) || can_complete(*ref->rule, path)) return true;
  return !publisher_.is_complete_in_base(job.overlay, *ref) &&
         !(ref->rule->says_when_complete() && publisher_.is_complete(job.overlay, *ref, false));
}

Flights::Seeker Filesystem::seeker_of(const Request& request, Job& job, std::string path) const {
  const pid_t thread = request.caller.tid;
  const bool publishes = job.policy() == PublishPolicy::kComplete && may_publish(request);
  Flights::Seeker seeker{std::move(path), &job, publishes, lineage_of(thread), thread};
  const auto ref = entries_.find(seeker.path);
  if (!ref) return seeker;
  seeker.entry = ref->entry;
  if (ref->rule->one_by_one) seeker.rule = ref->rule;
  return seeker;
}

// If the next entry of a builder is there, its open is all that the daemon sees of the builder's going on.
void Filesystem::note_open_for_flights(const Request& request, Job& job, NodeIndex node) {
  if (!flights_ || !flights_->any()) return;
  const auto path = [&] {
    const std::shared_lock lock(job.overlay.mutex());
    return nodes_.path(node);
  }();
  if (!path || entries_.class_of(*path) != NameClass::kFlight) return;
  const Flights::Seeker seeker = seeker_of(request, job, *path);
  if (!seeker.lineage.empty()) flights_->note_open(seeker);
}

void Filesystem::note_step(const Job& job, const std::string& path, bool is_removed) {
  using Step = Flights::Step;
  if (!flights_ || !flights_->any()) return;
  const auto ref = entries_.find(path);
  if (!ref || !ref->rule->is_folder() || ref->is_entry_folder()) return;
  const bool is_beside = entries_.is_beside_entry(path);
  // What is below a temporary directory goes before it does.
  const bool is_cleared =
      is_removed && entries_.is_scratch(path) && ref->rest.find('/') == ref->rest.npos;
  if (is_removed && !is_cleared) return;
  const Step made = is_beside ? Step::kTemporary : Step::kPart;
  flights_->note_step(job, std::string(ref->entry), is_cleared ? Step::kCleared : made);
}

void Filesystem::note_step(NodeRef parent, const std::string& name) {
  if (!flights_ || !flights_->any()) return;
  const NodeInfo info = nodes_.info(parent.node);
  if (info.kind != NodeKind::kObject) return;
  const auto path = [&] {
    const std::shared_lock lock(info.job->overlay.mutex());
    return child_path(parent, name);
  }();
  if (path) note_step(*info.job, *path);
}

Flights::EntryState Filesystem::inspect_flight(const Job& job, const std::string& path) const {
  const std::shared_lock lock(job.overlay.mutex());
  Flights::EntryState state;
  state.has_name = static_cast<bool>(job.overlay.find(path));
  const auto ref = entries_.find(path);
  if (!ref) return state;
  // An entry that is built elsewhere shows nothing before it is there.
  state.is_begun = ref->is_entry_folder() || job.overlay.has_own_folder(std::string(ref->entry));
  state.completes = ref->is_entry_folder() || can_complete(*ref->rule, path);
  state.is_complete =
      can_tell(*ref->rule) ? publisher_.is_complete_in_base(job.overlay, *ref) : state.has_name;
  return state;
}

void Filesystem::note_arrival(const Job& job, const std::string& path,
                              const std::string& completed) {
  if (!flights_) return;
  if (!completed.empty()) return flights_->finished(job, completed);
  const auto ref = entries_.find(path);
  if (!ref || !ref->rule->is_folder()) return;
  // Only a job that publishes records what is built under a lock.
  const bool notes_unlock = job.wanted_policy() == PublishPolicy::kComplete;
  const bool is_end_seen =
      ref->rule->says_when_complete() || (!ref->rule->built_under.empty() && notes_unlock);
  // A file that is added to a complete entry does not complete it again.
  const auto is_addition = [&] {
    if (entries_.class_of(path) != NameClass::kFlight) return false;
    const std::shared_lock lock(job.overlay.mutex());
    return publisher_.is_complete_in_base(job.overlay, *ref);
  };
  if (!is_end_seen || is_addition()) flights_->finished(job, path);
}

// The answer to a look that found nothing, `missed`.
Result<Entry> Filesystem::join_flight(const Request& request, NodeRef parent,
                                                 const NodeInfo& info, const std::string& name,
                                                 const Entry& missed) {
  Job& job = *info.job;
  std::string path;
  {
    const std::shared_lock lock(job.overlay.mutex());
    auto found = child_path(parent, name);
    if (!found || !is_worth_waiting_for(job, *found)) return missed;
    path = *std::move(found);
  }
  const Flights::Seeker seeker = seeker_of(request, job, std::move(path));
  if (seeker.lineage.empty()) return missed;
  Entry nothing{};  // and ask again each time
  if (seeker.is_entry() && !only_asks(seeker.thread)) return nothing;
  const Flights::Answer answer = flights_->look(seeker);
  if (answer.advice == Flights::Advice::kWait) {
    const mode_t mode = seeker.is_entry() ? S_IFDIR | 0755 : S_IFREG | 0644;
    return placeholder_entry({answer.placeholder, parent.slot}, mode);
  }
  if (answer.advice != Flights::Advice::kLead) return nothing;
  const std::shared_lock lock(job.overlay.mutex());
  auto again = find_entry(parent, info, name);
  if (!again || again->ino == 0) return nothing;
  flights_->give_up(seeker);
  return again;
}

// Nothing is valid for any time: before the kernel uses a placeholder, as a directory or a file, it asks for the
// attributes to check the caller's permission (default_permissions), and that request waits.
Result<Entry> Filesystem::placeholder_entry(NodeRef ref, mode_t mode) const {
  struct stat st {};
  st.st_mode = mode;
  Entry entry{};
  entry.ino = encode(ref);
  CACHESHIM_TRY(shown, show(ref, nodes_.info(ref.node), st, true));
  entry.attr = shown;
  entry.attr.st_nlink = 1;
  return entry;
}

bool Filesystem::may_be_placeholder(NodeIndex node, const NodeInfo& info) const {
  const bool has_nothing = info.removed && info.object_fd() < 0;
  return flights_ && info.kind == NodeKind::kObject && has_nothing && !open_files_.has(node);
}

}  // namespace cacheshim
