// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuse/mount.h"
#include "fuse/vfs/answers.h"
#include "fuse/vfs/attribute_requests.h"
#include "fuse/vfs/change_guard.h"
#include "fuse/vfs/directories.h"
#include "fuse/vfs/file_data.h"
#include "fuse/vfs/files.h"
#include "fuse/vfs/flight_requests.h"
#include "fuse/vfs/lock_requests.h"
#include "fuse/vfs/names.h"
#include "fuse/vfs/objects.h"
#include "fuse/vfs/own_tree.h"

namespace cacheshim {

// The operations of the file system, one for each FUSE request. Many threads call them concurrently, with no lock held.
// An operation that may take a long time, or that must wait, takes a completion and completes it later, with no lock
// held.
struct Filesystem {
  // Both must outlive this object.
  Filesystem(Mount& the_mount, ControlFiles& control)
      : mount(the_mount), own_tree(mount, control) {}

  Mount& mount;
  Objects objects{mount};
  Answers answers{mount, objects};
  OwnTree own_tree;
  ChangeGuard change_guard{mount, own_tree};
  FlightRequests flight_requests{mount, objects, answers};
  LockRequests locks{mount, change_guard};
  FileData file_data{mount, objects, answers, own_tree};
  Files files{mount, objects, answers, own_tree, flight_requests, locks, file_data};
  Names names{mount, objects, answers, own_tree, flight_requests, locks};
  AttributeRequests attributes{mount, objects, answers, own_tree, flight_requests, file_data};
  Directories directories{mount, objects, own_tree};
};

}  // namespace cacheshim
