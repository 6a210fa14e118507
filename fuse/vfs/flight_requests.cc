// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/flight_requests.h"

#include <sys/stat.h>

#include "fuse/services/single_flight/pending_call.h"

namespace cacheshim {

void FlightRequests::note_step(NodeRef parent, const std::string& name) {
  if (!mount_.single_flight.any()) return;
  const NodeInfo info = mount_.nodes.info(parent.node);
  if (info.kind != NodeKind::kObject) return;
  const auto path = [&] {
    const ReaderLock lock(info.job->overlay.mutex());
    return objects_.child_path(*info.job, parent, name);
  }();
  if (path) mount_.single_flight.note_step(*info.job, *path);
}

Result<Entry> FlightRequests::join_flight(const Request& request, NodeRef parent,
                                          const NodeInfo& info, const std::string& name,
                                          const Entry& missed) {
  Job& job = *info.job;
  std::string path;
  {
    const ReaderLock lock(job.overlay.mutex());
    auto found = objects_.child_path(job, parent, name);
    if (!found || !mount_.single_flight.is_worth_waiting_for(job, *found)) return missed;
    path = *std::move(found);
  }
  const LeaseRequest lease_request = lease_request_of(request, job, std::move(path));
  if (lease_request.lineage.empty()) return missed;
  Entry nothing{};  // with timeout 0, so that the kernel looks the name up each time
  if (lease_request.is_entry() && !can_wait_after_lookup(lease_request.thread)) return nothing;
  const Flights::Answer answer = mount_.single_flight.flights()->request_lease(lease_request);
  if (answer.advice == Flights::Advice::kWait) {
    const mode_t mode = lease_request.is_entry() ? S_IFDIR | 0755 : S_IFREG | 0644;
    return placeholder_entry({answer.placeholder, parent.slot}, mode);
  }
  if (answer.advice != Flights::Advice::kBuildWithLease) return nothing;
  // Another machine may have published the entry and released the lease since the miss.
  job.overlay.expect_in_base(lease_request.path);
  auto again = [&] {
    const ReaderLock lock(job.overlay.mutex());
    return answers_.find_entry(job, parent, name);
  }();
  if (!again || again->ino == 0) return nothing;
  mount_.single_flight.flights()->give_up(lease_request);
  return again;
}

LeaseRequest FlightRequests::lease_request_of(const Request& request, Job& job, std::string path) {
  LeaseRequest made = mount_.single_flight.lease_request_of(request.caller, job, std::move(path));
  made.account = &mount_.limits.account(request.caller.uid);
  return made;
}

// All timeouts are 0. So before the kernel uses a placeholder, it requests the attributes to check the caller's
// permission (default_permissions). This GETATTR waits for the build.
Result<Entry> FlightRequests::placeholder_entry(NodeRef ref, mode_t mode) const {
  struct stat st {};
  st.st_mode = mode;
  Entry entry{};
  entry.ino = encode(ref);
  CACHESHIM_TRY(shown, answers_.show(ref, mount_.nodes.info(ref.node), st, true));
  entry.attr = shown;
  entry.attr.st_nlink = 1;
  return entry;
}

bool FlightRequests::may_be_placeholder(NodeIndex node, const NodeInfo& info) const {
  const bool has_nothing = info.removed && info.object_fd() < 0;
  return mount_.single_flight.flights() != nullptr && info.kind == NodeKind::kObject &&
         has_nothing && !mount_.open_files.has(node);
}

}  // namespace cacheshim
