// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <variant>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/base/audit_log.h"

// A store: a directory of plain cache files (the base) with cacheshim's records beside it.
//
//   STORE/NAME/…              the base
//   STORE/.cacheshim/format   "1", then "mount <path>", the recorded mount path
//   STORE/.cacheshim/layers/  the jobs' layers (or elsewhere, by --layers)
//   STORE/.cacheshim/staging/<daemon>/   files that one daemon is publishing; locked while that daemon lives
//   STORE/.cacheshim/trash/   removed files, until they are swept
//   STORE/.cacheshim/leases/  files that daemons lock: leases, batons and heartbeats (lease_files.h,
//                             named_lock_files.h, heartbeats.h)
//   STORE/.cacheshim/audit/   published, evicted and repaired units, one file for each boot of each
//                             machine (audit_log.h)
namespace cacheshim {

struct StoreError {
  std::string message;  // one line: what, where, why, what happens now
};

class Store {
 public:
  // Opens the store at `path`, an existing directory, and creates missing records. Removes the
  // files that dead daemons have left in staging and leases. If `layers_path` is "", the layers are
  // in STORE/.cacheshim/layers.
  static std::variant<Store, StoreError> open(const std::string& path,
                                              const std::string& layers_path);

  // Returns a store that is only a base, without records: jobs get no layers from it and nothing is
  // published to it.
  static Store bare(UniqueFd base);

  int base() const { return base_.get(); }
  // Whether the daemon can create files in the base.
  bool is_writable() const;
  int layers() const { return layers_.get(); }
  // This daemon's own directory in staging, on the base's file system.
  int staging() const { return staging_.get(); }
  int leases() const { return leases_.get(); }
  int trash() const { return trash_.get(); }
  const AuditLog& audit() const { return audit_; }

  // Takes the lock for eviction and repair. Closing the descriptor releases it. Errors: EWOULDBLOCK
  // if another process holds it.
  Result<UniqueFd> try_lock_base() const;
  // note_eviction() records the end of an eviction round; `lock` is the lock of try_lock_base(). has_evicted_within()
  // returns whether any daemon of the store has recorded a round within `interval`. It compares the file server's clock
  // with this machine's, so the two clocks should agree to within a fraction of the interval.
  static void note_eviction(const UniqueFd& lock);
  bool has_evicted_within(std::chrono::seconds interval) const;

  // The recorded mount path; "" if none has been recorded yet.
  const std::string& mount_path() const { return mount_path_; }
  Status record_mount_path(const std::string& path);
  // Whether another living daemon was serving the store when this object opened it. May also be true because of a dead
  // daemon's staging directory, if another daemon was sweeping at the time.
  bool has_other_daemons() const { return has_other_daemons_; }

  // Creates the directory `name` of the base with mode 0755. Succeeds if the name exists, and then
  // changes nothing.
  Status ensure_base_dir(const std::string& name) const;

 private:
  Result<UniqueFd> open_record_dir(int parent, const std::string& name, const std::string& shown);
  Status make_records(const std::string& layers_path);
  Status read_format();
  Status open_staging();
  void sweep(int all);
  StoreError explain(const std::string& path, Errno error) const;

  UniqueFd base_;
  UniqueFd control_;
  UniqueFd layers_;
  UniqueFd trash_;
  AuditLog audit_;
  UniqueFd staging_;
  UniqueFd staging_lock_;
  UniqueFd leases_;
  std::string mount_path_;
  std::string refusal_;
  bool has_other_daemons_ = false;
};

// Returns the name of this machine in the records.
std::string node_name();

}  // namespace cacheshim
