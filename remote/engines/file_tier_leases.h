// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/result.h"
#include "remote/engines/file_tier_files.h"

// FileTier's leases: the files in leases/.
//
// The functions are thread-safe. Each makes one attempt. Errors: ESTALE or ENOENT if another machine has removed a file
// or directory meanwhile (the caller then repeats the call), kDamaged from find_blocker() if the object is damaged,
// and those of the system calls.
namespace cacheshim::remote::file_tier {

// The contents of a lease's file, and the time at which the owner last touched it.
struct Lease {
  std::uint64_t number = 0;
  std::string owner;
  std::chrono::milliseconds ttl{0};  // 0: released
  ServerTime renewed{0};
};

// Returns the fencing number; nothing if the owner does not get the lease.
Result<std::optional<std::uint64_t>> try_acquire(const Root& root, const std::string& key,
                                                 const std::string& owner,
                                                 std::chrono::milliseconds ttl);

// Returns false if the owner no longer has the lease. All its leases of the key are then released.
Result<bool> try_renew(const Root& root, const std::string& key, const std::string& owner,
                       std::chrono::milliseconds ttl);

// Releases all leases of the key that name `owner`. Returns false if the key never had a lease.
Result<bool> try_release(const Root& root, const std::string& key, const std::string& owner);

// Returns the unreleased lease with the highest number, even if it has expired; nothing if the key exists or all its
// leases are released.
Result<std::optional<Lease>> find_blocker(const Root& root, const std::string& key);

}  // namespace cacheshim::remote::file_tier
