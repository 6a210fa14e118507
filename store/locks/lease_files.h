// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// Returns the name of the file in leases/ for `path`: the file of the lease, or the file that
// stands in for the baton `path` when a job locks the baton.
std::string lease_name(std::string_view path);

// The leases of a store's daemons: files in STORE/.cacheshim/leases, named by the hash of the path
// that is built. The builder's daemon holds an flock(2) lock on the file, so the lease is released
// when that daemon dies, on any node. Thread-safe.
class LeaseFiles {
 public:
  // `directory` must stay open. If it is -1, every lease is granted.
  explicit LeaseFiles(int directory) : directory_(directory) {}

  // Takes the lease of `path`. The caller holds it while the descriptor is open, and ends it by
  // release(). Errors: EWOULDBLOCK while another daemon holds the lease. If the file cannot be
  // created or locked, for example because the file system does not support locks, returns an empty
  // descriptor. The lease then excludes only processes of this daemon's mount.
  Result<UniqueFd> try_take(std::string_view path) const;
  void release(std::string_view path, UniqueFd lease) const;
  // Records the user whose process builds, for other daemons. Does nothing for an empty descriptor.
  static void note_builder(const UniqueFd& lease, uid_t uid);
  // Returns the user that the holder of the lease has recorded, and the age of the record; nothing
  // if there is no record, for example because the holder is an older version of the daemon.
  struct Builder {
    uid_t uid;
    std::chrono::seconds since;
  };
  std::optional<Builder> builder_of(std::string_view path) const;
  // Removes the files that no process has locked by flock(2) or fcntl(2): files that a dead daemon
  // has left, and files that stand in for batons (NamedLockFiles).
  void sweep() const;

 private:
  int directory_;
};

}  // namespace cacheshim
