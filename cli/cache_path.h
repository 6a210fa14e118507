// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/profiles/profile.h"

namespace cacheshim::cli {

// Returns a profile's default path with "~/" replaced by HOME; empty if there is no HOME.
std::string expand_home(const std::string& path);

struct CachePath {
  std::string path;  // relative to the store, "triton/KEY/k.cubin"
  std::string job;   // the job, if the path is in a job's view; otherwise empty
};

// Interprets a path from the command line. The path may be below the mount, one of its views, the
// store or a family's default path, or be relative to the store, such as "triton/KEY/k.cubin".
// Returns nothing for any other path. Does not follow symlinks, because a mount's symlinks lead
// each job to its own view.
std::optional<CachePath> find_cache_path(const std::string& text, const std::string& mount,
                                         const std::string& store,
                                         const std::vector<Profile>& profiles);

}  // namespace cacheshim::cli
