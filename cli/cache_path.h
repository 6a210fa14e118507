// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/profiles/profile.h"

namespace cacheshim::cli {

// A profile's default path, "~/" replaced by HOME; empty where there is no HOME.
std::string expand_home(const std::string& path);

struct CachePath {
  std::string path;  // relative to the store, "triton/KEY/k.cubin"
  std::string job;   // where the path names a job's view; or empty
};

// What a path means that was given on the command line: below the mount, one of its views, the store,
// a family's default path, or, as it stands, "triton/KEY/k.cubin". Symlinks are not followed, since
// those of a mount lead each job elsewhere. Nothing for any other path.
std::optional<CachePath> find_cache_path(const std::string& text, const std::string& mount,
                                         const std::string& store,
                                         const std::vector<Profile>& profiles);

}  // namespace cacheshim::cli
