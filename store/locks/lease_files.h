// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/locks/heartbeats.h"

namespace cacheshim {

// Returns the name of the file in leases/ for `path`: the file of the lease, or the file that
// stands in for the baton `path` when a job locks the baton.
std::string lease_name(std::string_view path);

// The leases of a store's daemons: files in STORE/.cacheshim/leases, each named by the hash of the
// path that is being built. The builder's daemon holds an flock(2) lock on the file, so the lease
// is released when that daemon dies. If the daemon's machine dies, a file server keeps the lock for
// 30 to 90 s. So another daemon takes over the lease as soon as the heartbeats show that the
// builder's daemon is dead. On a shared file system without flock(2), the daemon that has created
// the file has the lease. Thread-safe.
class LeaseFiles {
 public:
  struct Options {
    Heartbeats* heartbeats = nullptr;  // null if all daemons of the store are on this machine
    bool has_locks = true;             // whether the file system has flock(2); may be false only with heartbeats
  };
  // `directory` must stay open. If it is -1, every lease is granted. The heartbeats must outlive this
  // object and its copies.
  explicit LeaseFiles(int directory) : LeaseFiles(directory, Options()) {}
  LeaseFiles(int directory, Options options) : directory_(directory), options_(options) {}

  // Takes the lease of `path`. The caller holds the lease while the descriptor is open, and ends it
  // by release(). Errors: EWOULDBLOCK while another daemon holds the lease. If the file cannot be
  // created or locked, for example because a local file system does not support locks, returns an
  // empty descriptor. The lease then excludes only processes of this daemon's mount.
  Result<UniqueFd> try_take(std::string_view path) const;
  void release(std::string_view path, UniqueFd lease) const;
  // Records, for other daemons, the user whose process is building. Does nothing for an empty descriptor.
  void note_builder(const UniqueFd& lease, uid_t uid) const;
  // Returns the user that the holder of the lease has recorded, and the age of the record; nothing
  // if there is no record, for example because the holder is an older version of the daemon.
  struct Builder {
    uid_t uid;
    std::chrono::seconds since;
  };
  std::optional<Builder> builder_of(std::string_view path) const;
  // Removes the files of leases/ that no process has locked by flock(2) or fcntl(2): files that a dead daemon
  // has left, and files that stand in for batons (NamedLockFiles).
  void sweep() const;

 private:
  Result<UniqueFd> take(const std::string& name) const;
  Result<UniqueFd> take_by_lock(const std::string& name) const;
  Result<UniqueFd> take_by_name(const std::string& name) const;
  bool free_from_dead(const std::string& name, int file) const;
  void release_name(const std::string& name, UniqueFd lease) const;
  void write_record(int file, const std::string& builder) const;

  int directory_;
  Options options_;
};

}  // namespace cacheshim
