// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "fuse/services/single_flight/flight_types.h"
#include "fuse/services/single_flight/fruitless_users.h"
#include "fuse/services/single_flight/lease.h"

namespace cacheshim {

// Decides whether processes of all jobs wait for a user's builds, or only those of the builder's job (FruitlessUsers).
// Not thread-safe: part of LeaseTable, guarded by its lock.
class BuilderExclusion {
 public:
  explicit BuilderExclusion(const FlightOptions& options)
      : options_(options), users_(options.timeout) {}

  // Whether the request's process may get a lease for all jobs, so that the processes of all jobs wait for its build.
  // If not, only the processes of its own job wait.
  bool may_build_for_all(const LeaseRequest& request) const;
  // Whether an excluded user has the lease for all jobs, from this daemon or from another one.
  bool applies_to(const LeaseKey& key, const Lease& lease) const;
  // As applies_to(), for a lease of `path` that another daemon has granted.
  bool applies_elsewhere(const std::string& path) const;
  // Call when processes have waited for the builder in vain. Charges the builder's user for the longest wait of another
  // user's process.
  void charge(const LeaseKey& key, Lease& lease);
  // Call when a job of this user has published an entry.
  void note_published(uid_t uid) { users_.forgive(uid, options_.now()); }
  std::vector<uid_t> list() const { return users_.list(options_.now()); }

 private:
  const FlightOptions& options_;
  FruitlessUsers users_;
};

}  // namespace cacheshim
