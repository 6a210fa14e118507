// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/counters.h"
#include "fuse/limits/user_limits.h"
#include "fuse/requests/remote_entries.h"

namespace cacheshim {

class Mount;

// The values of a mount that metrics_text() shows.
struct MetricsState {
  std::string mount;
  std::string store;
  std::int64_t started = 0;  // seconds since 1970
  CounterValues counters{};
  std::vector<UserLimits::Use> limits;  // in the order of kLimitRows
  bool is_store_full = false;           // publishing has stopped
  std::size_t excluded_builders = 0;
  std::optional<RemoteEntries::State> remote;  // nothing without a remote tier
};

// Returns the metrics in Prometheus's text format. Each sample has the label `mount`.
std::string metrics_text(const MetricsState& state);

std::string metrics_of(Mount& mount);
CounterValues counters_of(Mount& mount);

}  // namespace cacheshim
