// SPDX-License-Identifier: Apache-2.0
#include "shim/start/process_files.h"

#include <cstdlib>

// The library that the tests preload is built from the same sources, but reads the files of the
// kernel and the daemon from a directory of the test, so that plain directories can simulate a
// mount.
namespace cacheshim {
namespace {

const char* path_from(const char* variable) {
  const char* const path = std::getenv(variable);
  return path == nullptr ? "/nonexistent" : path;
}

}  // namespace

const char* mountinfo_path() { return path_from("TEST_MOUNTINFO"); }
const char* cgroup_path() { return path_from("TEST_CGROUP"); }
const char* run_base() { return path_from("TEST_RUN"); }

}  // namespace cacheshim
