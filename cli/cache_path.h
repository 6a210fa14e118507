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
  std::string job;   // the job whose view the path names; otherwise empty
};

// Interprets a path from the command line. It is below the mount, one of its views, the store or a
// family's default path, or is relative to the store, such as "triton/KEY/k.cubin". Does not follow
// symlinks, because the symlinks of a mount lead each job elsewhere. Returns nothing for any other
// path.
std::optional<CachePath> find_cache_path(const std::string& text, const std::string& mount,
                                         const std::string& store,
                                         const std::vector<Profile>& profiles);

}  // namespace cacheshim::cli
