// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/result.h"

// What lies in a store's records, for a report: looked at from outside, beside daemons that may serve it,
// without a change and without a lock taken.
namespace cacheshim {

struct SurveyedLayer {
  std::string job;
  std::string node;  // as on record, "" where there is none that can be read
  bool is_active = false;
  bool is_ended = false;   // kept for a while
  bool is_served = false;  // by a daemon of this machine, whose lock is seen
};

// `layers`: the folder that holds them. Errors: those of reading it.
Result<std::vector<SurveyedLayer>> survey_layers(int layers);

// Of `control`, a store's .cacheshim: how many things are in its trash that have been there for longer than
// that. Errors: those of reading it; ENOENT where there is no trash.
Result<std::size_t> count_old_trash(int control, long keep_seconds);

// Folders in staging whose daemon is gone.
Result<std::size_t> count_left_staging(int control);

enum class LockSupport { kWorks, kNone, kUnknown };
// Whether flock(2) works on the file system of `file`, open for reading: a shared lock is asked for and
// given back.
LockSupport probe_locks(int file);

// Whether files made in the folder share their blocks when copied (reflink), by two files without names.
// Errors: those of making these.
Result<bool> probe_reflink(int folder);

}  // namespace cacheshim
