// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "common/result.h"
#include "remote/engines/file_tier_files.h"
#include "remote/engines/remote_tier.h"

// FileTier's catalogue: the pages of keys.
namespace cacheshim::remote::file_tier {

// The limits of a page: its number of keys, and the time at which it ends.
struct PageLimits {
  std::size_t most;
  std::chrono::steady_clock::time_point deadline;

  bool is_reached(const CataloguePage& page) const {
    return page.keys.size() >= most || std::chrono::steady_clock::now() >= deadline;
  }
};

// Returns the page that begins at `position`. An unusable position counts as the beginning of the catalogue. `slack` is
// the overlap with the previous sweep. Thread-safe. Makes one attempt. Errors: ESTALE or ENOENT if another machine has
// removed a file or directory meanwhile (the caller then repeats the call), and those of the system calls.
Result<CataloguePage> try_page(const Root& root, const std::string& position,
                               std::chrono::milliseconds slack, const PageLimits& limits);

}  // namespace cacheshim::remote::file_tier
