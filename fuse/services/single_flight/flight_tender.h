// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/counters.h"
#include "fuse/services/single_flight/lease_table.h"

namespace cacheshim {

// Ends the waits and leases that no request ends: after a builder has exited, a wait has timed out, or a build has
// finished or failed. Call only on the loop's thread.
class FlightTender {
 public:
  // All must outlive this object.
  FlightTender(const FlightOptions& options, LeaseTable& table, Counters& counters)
      : options_(options), table_(table), counters_(counters) {}

  // Returns the time after which tend() must be called even if no builder exits; -1 if it need not be called.
  std::chrono::milliseconds time_to_next_check() const EXCLUDES(table_.mutex);
  // `ended`: the serials of the leases whose builders have exited.
  void tend(const std::vector<std::uint64_t>& ended) EXCLUDES(table_.mutex);

 private:
  // A builder of an entry. Its work is determined with the lock released.
  struct Watched {
    LeaseKey key;
    std::uint64_t serial;
    pid_t builder;
    Process thread;
    std::optional<BuilderWork> work = {};
  };

  void end_late_waits() REQUIRES(table_.mutex);
  void replace_excluded_builders() REQUIRES(table_.mutex);
  void try_leases_held_elsewhere() REQUIRES(table_.mutex);
  void check_names() EXCLUDES(table_.mutex);
  std::vector<LeaseFinding> take_findings() EXCLUDES(table_.mutex);
  void settle(const LeaseFinding& finding) REQUIRES(table_.mutex);
  void check_builders() EXCLUDES(table_.mutex);
  std::vector<Watched> take_watched() EXCLUDES(table_.mutex);
  bool has_stopped_building(Lease& lease, const BuilderWork& work) const REQUIRES(table_.mutex);

  const FlightOptions& options_;
  LeaseTable& table_;
  Counters& counters_;
};

}  // namespace cacheshim
