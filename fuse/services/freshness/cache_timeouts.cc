// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/cache_timeouts.h"

#include <fcntl.h>
#include <time.h>

#include <utility>

#include "fuse/services/freshness/timeouts.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// A process may still be writing to a base file that changed recently. The daemon learns of the writes only when the
// writer closes the file, so the kernel may cache the file's attributes only for a short time.
constexpr time_t kSettleSeconds = 5;

bool has_settled(const struct stat& st) {
  timespec now{};
  (void)::clock_gettime(CLOCK_REALTIME_COARSE, &now);  // cannot fail for a known clock
  return now.tv_sec - st.st_ctim.tv_sec > kSettleSeconds;
}

}  // namespace

void CacheTimeouts::watch(EventLoop& loop, const std::vector<int>& lowers, WatchMode mode,
                          bool is_local) {
  is_local_ = is_local;
  watch_ = BaseWatch::start(loop, lowers, mode,
                            [this](const auto& changes) { invalidation_.base_changed(changes); });
}

DirectoryLookup CacheTimeouts::begin(const Job& job, std::string directory) {
  const std::uint64_t generation = invalidation_.generations().of(directory);
  const bool late = is_late(job);
  const bool watched = watch_->ensure(directory) && is_local_ && !late;
  return {&job, std::move(directory), generation, watched, late, job.views.claim.is_made()};
}

// Whether invalidations in the job's view are late (LateOwners). Checks only the owner of the first view: if a job has
// several views, several uids share it, and of_name() lets the kernel cache nothing.
bool CacheTimeouts::is_late(const Job& job) const {
  const Notifier& notifier = invalidation_.notifier();
  return notifier.is_any_late() && notifier.is_late(job.views.owner().value_or(kNoOwner));
}

// The kernel caches no names or attributes of a job that several uids share, because the uids must see each other's
// changes without invalidations. For other jobs, the layer's names get kLongTimeout, because only this daemon changes
// the layer.
double CacheTimeouts::of_name(const DirectoryLookup& lookup, const Found* found) const {
  if (lookup.job->views.shares_uids()) return 0;
  if (lookup.late || is_late(*lookup.job)) return 0;
  if (found != nullptr && found->in_upper) return kLongTimeout;
  // The daemon asks a file server for absent names only once a second (ServerMisses). If the kernel cached the answer,
  // a new name could stay hidden for another second.
  if (found == nullptr && !is_local_) return 0;
  if (lookup.generation != invalidation_.generations().of(lookup.directory)) return 0;
  // The daemon cannot list the absent names that the kernel has cached. So absent names get kLongTimeout only if the
  // daemon can expire all names at once, which it must do after events were lost or a directory was renamed.
  const bool can_expire = found != nullptr || invalidation_.notifier().knows_epoch();
  return lookup.watched && can_expire ? kLongTimeout : kShortTimeout;
}

double CacheTimeouts::of_attributes(const DirectoryLookup& lookup, const Found& found,
                                    NodeRef ref) {
  const double timeout = of_name(lookup, &found);
  if (may_be_written_unseen(lookup, found, ref)) return 0;
  // If a user has claimed the view during the lookup, the answer may still show the daemon's user as the owner.
  if (lookup.claimed != lookup.job->views.claim.is_made()) return 0;
  if (found.in_upper || timeout != kLongTimeout) return timeout;
  if (S_ISDIR(found.st.st_mode)) return timeout;
  return has_settled(found.st) ? kLongTimeout : kShortTimeout;
}

// Whether the kernel may write to the file through a mapping, without a request to the daemon. The write would change
// st_mtime and st_ctime, so the kernel must not cache the file's attributes. The caller holds the overlay's lock, so no
// other thread can open the file for writing during the check.
bool CacheTimeouts::may_be_written_unseen(const DirectoryLookup& lookup, const Found& found,
                                          NodeRef ref) {
  if (!found.in_upper || !S_ISREG(found.st.st_mode)) return false;
  if (!io_modes_.may_be_written(encode(ref))) return false;
  const auto path = nodes_.path(ref.node);
  if (!path) return true;
  const auto can_be_written = [&]() REQUIRES_SHARED(lookup.job->overlay.mutex()) {
    const auto file = lookup.job->overlay.open(*path, O_RDONLY);
    return !file || sys::can_be_written(file->fd.get());  // if the open fails, assume that it can
  };
  return io_modes_.check_may_be_written(encode(ref), can_be_written);
}

}  // namespace cacheshim
