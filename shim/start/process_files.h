// SPDX-License-Identifier: Apache-2.0
#pragma once

// The paths of the kernel's and the daemon's files that the library reads. The tests build the
// library with other paths.
namespace cacheshim {

const char* mountinfo_path();
const char* cgroup_path();
const char* run_base();  // /run

}  // namespace cacheshim
