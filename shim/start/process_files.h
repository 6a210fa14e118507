// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the process looks for what the kernel and the daemon tell it. The tests build the library
// with other places.
namespace cacheshim {

const char* mountinfo_path();
const char* cgroup_path();
const char* run_base();  // /run

}  // namespace cacheshim
