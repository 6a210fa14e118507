// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/inspector.h"

#include <fcntl.h>

#include <algorithm>

#include "fuse/mount.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr mode_t kRead = 04;
constexpr mode_t kSearch = 01;

struct Seen {
  struct stat st;
  bool in_layer;
};

Result<Seen> see(const Mount& mount, const Job* job, const std::string& path) {
  if (job != nullptr) {
    const ReaderLock lock(job->overlay.mutex());
    CACHESHIM_TRY(found, job->overlay.find(path));
    return Seen{found.st, found.in_upper};
  }
  CACHESHIM_TRY(fd, sys::open_beneath(mount.store.base(), path, O_PATH | O_NOFOLLOW));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  return Seen{st, false};
}

}  // namespace

bool Inspector::is_unrestricted() const {
  return caller_.uid == 0 || caller_.uid == sys::own_uid();
}

bool Inspector::may(const Mount& mount, const struct stat& st, bool in_layer, mode_t wanted) const {
  // With owner=squash, every user of the job counts as the owner of the layer's objects.
  if (in_layer && !mount.options.owners.keep) return true;
  mode_t granted = st.st_mode;
  if (st.st_uid == caller_.uid) {
    granted >>= 6;
  } else if (st.st_gid == caller_.gid ||
             std::find(groups_.begin(), groups_.end(), st.st_gid) != groups_.end()) {
    granted >>= 3;
  }
  return (granted & wanted) == wanted;
}

bool Inspector::may_look_up(const Mount& mount, const Job* job, const std::string& path) const {
  if (is_unrestricted()) return true;
  for (auto end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    const auto above = see(mount, job, path.substr(0, end));
    if (!above) return true;  // there is nothing below it either
    if (!may(mount, above->st, above->in_layer, kSearch)) return false;
  }
  return true;
}

bool Inspector::may_read(const Mount& mount, const struct stat& st, bool in_layer) const {
  return is_unrestricted() || may(mount, st, in_layer, kRead);
}

bool may_see_flight(Mount& mount, const FlightDescription& flight, uid_t uid) {
  if (uid == 0 || uid == sys::own_uid()) return true;
  const auto is_own = [&](const std::string& id) {
    const auto job = mount.jobs.find(id);
    return job != nullptr && job->views.may_change(uid);
  };
  return is_own(flight.job) || is_own(flight.builder_job) ||
         std::any_of(flight.waiting_jobs.begin(), flight.waiting_jobs.end(), is_own);
}

}  // namespace cacheshim
