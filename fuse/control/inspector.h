// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

#include "fuse/jobs/caller.h"

namespace cacheshim {

class Job;
class Mount;
struct FlightDescription;

// Decides which information the caller of a request may learn. The daemon can read every file, so it must check what
// the caller could read without the daemon. Root and the daemon's own user may learn everything.
class Inspector {
 public:
  // Call while the caller waits for the reply: afterwards, the caller's thread id may belong to another thread.
  explicit Inspector(const Caller& caller) : caller_(caller), groups_(groups_of(caller.tid)) {}

  uid_t uid() const { return caller_.uid; }
  bool is_unrestricted() const;
  // Whether the caller may search all directories above `path` in the job's view; in the base if `job` is null. Takes
  // Overlay::mutex() shared.
  bool may_look_up(const Mount& mount, const Job* job, const std::string& path) const;
  // Whether the caller may read an object that has these attributes. `in_layer`: it is in a layer, not in the base.
  bool may_read(const Mount& mount, const struct stat& st, bool in_layer) const;

 private:
  bool may(const Mount& mount, const struct stat& st, bool in_layer, mode_t wanted) const;

  Caller caller_;
  std::vector<gid_t> groups_;
};

// Whether the user may learn about a build: true for root, for the daemon's user, and for the users of the jobs that
// build the entry or wait for it.
bool may_see_flight(Mount& mount, const FlightDescription& flight, uid_t uid);

}  // namespace cacheshim
