// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cacheshim {

// What a mount has done since it was mounted, by the names of `cacheshim stats --json`. Each may be
// raised from any thread; a reader may see one raised before another.
struct Counters {
  using Count = std::atomic<std::uint64_t>;
  Count lookups{0};  // that reached the daemon
  Count opens_base{0};
  Count opens_layer{0};
  Count misses{0};
  Count flight_leases{0};
  Count flight_waits{0};
  Count flight_hits{0};
  Count flight_timeouts{0};
  Count flight_failures{0};
  Count entries_published{0};
  Count files_published{0};
  Count bytes_published{0};
  Count publish_conflicts{0};
  Count publish_refused{0};
  Count entries_rejected{0};
  Count rebuilds_equal{0};
  Count entries_replaced{0};
  Count copy_ups{0};
  Count lock_waits{0};
  Count batons_reaped{0};
  Count worker_restarts{0};
  Count verify_failures{0};
};

}  // namespace cacheshim
