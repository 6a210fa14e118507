// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "fuse/daemon.h"

namespace cacheshim::cli {

// What the command line says about a daemon.
struct DaemonArguments {
  std::string store;
  std::string layers;
  std::string config;
  std::vector<std::string> options;  // the words of -o
};

// Joins command line, configuration and profiles; everything but the mount point is set.
// Throws Failure: usage for the configuration and the options, unavailable for a store, a folder of
// layers or profiles that are not there. Refused profiles are printed and left out.
DaemonOptions make_daemon_options(const DaemonArguments& arguments,
                                  const std::string& shipped_profiles);

}  // namespace cacheshim::cli
