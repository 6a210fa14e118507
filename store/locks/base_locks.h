// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/locks/hidden_locks.h"
#include "store/locks/lock_directory.h"
#include "store/locks/lock_files.h"
#include "store/locks/lock_renames.h"
#include "store/locks/named_lock_files.h"
#include "store/profiles/entry_map.h"

namespace cacheshim {

// The base's lock files as one job sees them, or as the daemon itself sees them (Mount::base_locks). A job can hide
// some of them from its view (HiddenLocks); the daemon hides none.
struct BaseLocks {
  // `entries` must outlive the object.
  explicit BaseLocks(const EntryMap& entries)
      : files(entries, directory, hidden),
        renames(entries, directory, hidden),
        named(entries, directory, files) {}

  LockDirectory directory;
  HiddenLocks hidden;
  LockFiles files;
  LockRenames renames;
  NamedLockFiles named;
};

}  // namespace cacheshim
