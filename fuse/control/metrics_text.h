// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/counters.h"

namespace cacheshim {

class Mount;

// Returns the mount's metrics in Prometheus's text format. Each sample has the label `mount`. Thread-safe.
std::string metrics_of(Mount& mount);
CounterValues counters_of(Mount& mount);

}  // namespace cacheshim
