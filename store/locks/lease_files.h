// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"

namespace cacheshim {

// What the lease, or the lock, of `path` is called among the leases.
std::string lease_name(std::string_view path);

// Which daemon of a store leads in building a name: files in STORE/.cacheshim/leases, named by the
// hash of the name's path, of which the leader's daemon holds one by flock(2). So the lock is gone
// with its daemon, on whatever node that was. Thread-safe.
class LeaseFiles {
 public:
  // `folder` stays open; -1: every lease is to be had.
  explicit LeaseFiles(int folder) : folder_(folder) {}

  // Takes the lease of `path`; it is held until it is given to release(). Errors: EWOULDBLOCK while
  // another daemon holds it. Where the file system has no locks, or takes no more files, the
  // descriptor is empty: exclusion then ends at this daemon.
  Result<UniqueFd> try_take(std::string_view path) const;
  void release(std::string_view path, UniqueFd lease) const;
  // Removes what nobody holds: a daemon that died has left it, or it took the locks of a baton (LockFiles).
  void sweep() const;

 private:
  int folder_;
};

}  // namespace cacheshim
