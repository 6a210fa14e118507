// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fuse/services/single_flight/pending_call.h"
#include "fuse/vfs/filesystem.h"
#include "store/sys/paths.h"

// Single flight: which misses are worth waiting for, and the requests that wait (flights.h).
namespace cacheshim {
void Filesystem::note_step(NodeRef parent, const std::string& name) {
  if (!single_flight_.any()) return;
  const NodeInfo info = nodes_.info(parent.node);
  if (info.kind != NodeKind::kObject) return;
  const auto path = [&] {
    const std::shared_lock lock(info.job->overlay.mutex());
    return child_path(parent, name);
  }();
  if (path) single_flight_.note_step(*info.job, *path);
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
    if (!found || !single_flight_.is_worth_waiting_for(job, *found)) return missed;
    path = *std::move(found);
  }
  const Flights::Seeker seeker = single_flight_.seeker_of(request.caller, job, std::move(path));
  if (seeker.lineage.empty()) return missed;
  Entry nothing{};  // and ask again each time
  if (seeker.is_entry() && !only_asks(seeker.thread)) return nothing;
  const Flights::Answer answer = single_flight_.flights()->look(seeker);
  if (answer.advice == Flights::Advice::kWait) {
    const mode_t mode = seeker.is_entry() ? S_IFDIR | 0755 : S_IFREG | 0644;
    return placeholder_entry({answer.placeholder, parent.slot}, mode);
  }
  if (answer.advice != Flights::Advice::kLead) return nothing;
  const std::shared_lock lock(job.overlay.mutex());
  auto again = find_entry(parent, info, name);
  if (!again || again->ino == 0) return nothing;
  single_flight_.flights()->give_up(seeker);
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
  return single_flight_.flights() != nullptr && info.kind == NodeKind::kObject && has_nothing && !open_files_.has(node);
}

}  // namespace cacheshim
