// SPDX-License-Identifier: Apache-2.0
#include "shim/start/process_files.h"

#include "common/names.h"

namespace cacheshim {

const char* mountinfo_path() { return "/proc/self/mountinfo"; }
const char* cgroup_path() { return "/proc/self/cgroup"; }
const char* run_base() { return kRunBase.data(); }

}  // namespace cacheshim
