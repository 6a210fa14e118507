// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/base/audit_log.h"

// A store: a folder of plain cache files (the base) with our records beside it.
//
//   STORE/NAME/…              the base
//   STORE/.cacheshim/format   "1", then "mount <path>": the path this store is mounted at
//   STORE/.cacheshim/layers/  the jobs' layers (or elsewhere, by --layers)
//   STORE/.cacheshim/staging/<daemon>/   files on their way in; locked by their daemon while it lives
//   STORE/.cacheshim/trash/   files on their way out
//   STORE/.cacheshim/leases/  who builds what, between daemons (lease_files.h, lock_files.h)
//   STORE/.cacheshim/audit/   what was published, evicted and repaired (audit_log.h)
namespace cacheshim {

struct StoreError {
  std::string message;  // one line: what, where, why, what happens now
};

class Store {
 public:
  // Opens the store at `path`, an existing folder, and makes what is missing of its records.
  // Empties what daemons that are gone have left in staging and trash. `layers_path` may be empty.
  static std::variant<Store, StoreError> open(const std::string& path,
                                              const std::string& layers_path);

  // A base alone, without records: jobs get no layers from it and nothing is published to it.
  static Store bare(UniqueFd base);

  int base() const { return base_.get(); }
  // Whether we can make files in the base.
  bool is_writable() const;
  int layers() const { return layers_.get(); }
  // This daemon's own folder in staging, on the base's file system.
  int staging() const { return staging_.get(); }
  int leases() const { return leases_.get(); }
  int trash() const { return trash_.get(); }
  const AuditLog& audit() const { return audit_; }

  // Held by whoever evicts or repairs; its lock goes with the descriptor. Errors: EWOULDBLOCK.
  Result<UniqueFd> try_lock_base() const;

  // The mount path on record, "" for none yet.
  const std::string& mount_path() const { return mount_path_; }
  Status record_mount_path(const std::string& path);
  // Whether another living daemon served this store when it was opened.
  bool has_other_daemons() const { return has_other_daemons_; }

  // Ensures that the base has the folder `name`, mode 0755.
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

// The name of this machine, as it stands in the records.
std::string node_name();

}  // namespace cacheshim
