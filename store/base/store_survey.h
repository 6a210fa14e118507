// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/result.h"

// Reads a store's records for a report. Changes nothing and takes none of the store's locks, so
// daemons may serve the store at the same time.
namespace cacheshim {

struct SurveyedLayer {
  std::string job;
  std::string node;  // as recorded, "" if there is no readable record
  bool is_active = false;
  bool is_ended = false;   // the job has ended, and the layer is kept until a sweep
  bool is_served = false;  // a daemon of this machine holds its lock, according to /proc/locks
};

// `layers` is the directory of the layers. Errors: those of reading this directory.
Result<std::vector<SurveyedLayer>> survey_layers(int layers);

// Returns the number of objects that have been in the trash of the store for at least
// `keep_seconds`. `control` is the store's directory .cacheshim. Errors: those of reading the
// trash; ENOENT if there is no trash.
Result<std::size_t> count_old_trash(int control, long keep_seconds);

// Counts directories in staging that no daemon of this machine has locked, according to /proc/locks. The count includes
// the directories of living daemons on other machines.
Result<std::size_t> count_left_staging(int control);

enum class LockSupport { kWorks, kNone, kUnknown };
// Whether flock(2) works on the file system of `file`, open for reading: takes a shared lock and
// releases it.
LockSupport probe_locks(int file);

// Whether a copy of a file in the directory can share the file's blocks (reflink, FICLONE). Tries this with two unnamed
// files. Errors: those of creating and writing the files.
Result<bool> probe_reflink(int directory);

}  // namespace cacheshim
