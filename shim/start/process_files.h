// SPDX-License-Identifier: Apache-2.0
#pragma once

// The paths of files that the process reads from the kernel and the daemon. The tests build the
// library with other paths.
namespace cacheshim {

const char* mountinfo_path();
const char* cgroup_path();
const char* run_base();  // /run

}  // namespace cacheshim
