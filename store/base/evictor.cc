// SPDX-License-Identifier: Apache-2.0
#include "store/base/evictor.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Tracks the size of the base and the free space of its file system while units are chosen for eviction.
class Budget {
 public:
  Budget(const EvictionLimits& limits, std::uint64_t free_bytes, std::uint64_t size_bytes)
      : limits_(limits), free_(free_bytes), wanted_free_(limits.min_free.value_or(0)) {
    const double share = limits.min_free_percent.value_or(0) / 100;
    wanted_free_ =
        std::max(wanted_free_, static_cast<std::uint64_t>(share * static_cast<double>(size_bytes)));
  }
  void add(const BaseUnit& unit) {
    bytes_ += unit.bytes;
    files_ += unit.files;
  }
  void take(const BaseUnit& unit) {
    bytes_ -= unit.bytes;
    files_ -= unit.files;
    free_ += unit.bytes;
  }
  // Returns the name of an exceeded limit; "" if none is exceeded.
  std::string exceeded() const {
    if (free_ < wanted_free_) return "min_free";
    if (limits_.max_size && bytes_ > *limits_.max_size) return "max_size";
    if (limits_.max_files && files_ > *limits_.max_files) return "max_files";
    return "";
  }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t files() const { return files_; }

 private:
  const EvictionLimits& limits_;
  std::uint64_t free_;
  std::uint64_t wanted_free_;
  std::uint64_t bytes_ = 0;
  std::uint64_t files_ = 0;
};

}  // namespace

EvictionReport choose_units(std::vector<BaseUnit> units, const EvictionLimits& limits,
                            std::time_t now, std::uint64_t free_bytes, std::uint64_t size_bytes) {
  std::sort(units.begin(), units.end(), [](const BaseUnit& left, const BaseUnit& right) {
    return std::tie(left.last_use, left.unit) < std::tie(right.last_use, right.unit);
  });
  Budget budget(limits, free_bytes, size_bytes);
  for (const BaseUnit& unit : units) budget.add(unit);
  EvictionReport report;
  report.bytes_before = budget.bytes();
  report.files_before = budget.files();
  for (BaseUnit& unit : units) {
    const std::time_t age = now - unit.last_use;
    std::string reason = budget.exceeded();
    if (reason.empty() && limits.max_age && age > limits.max_age->count()) reason = "max_age";
    if (reason.empty()) break;  // all remaining units were used more recently
    const bool is_young = age < limits.min_age.count();
    if (is_young && reason != "min_free") {
      report.is_over = reason != "max_age";
      break;
    }
    budget.take(unit);
    report.bytes += unit.bytes;
    report.files += unit.files;
    report.evicted.push_back({std::move(unit), std::move(reason), is_young});
  }
  return report;
}

EvictionReport plan_eviction(const Store& store, const EntryMap& entries,
                             const EvictionLimits& limits) {
  const auto space = sys::statvfs_fd(store.base());
  const std::uint64_t block = space ? space->f_frsize : 0;
  // If the file system does not report its free space, min_free is ignored.
  const std::uint64_t free_bytes = space ? space->f_bavail * block : ~std::uint64_t{0} / 2;
  const std::uint64_t size_bytes = space ? space->f_blocks * block : 0;
  return choose_units(list_base_units(store, entries), limits, std::time(nullptr), free_bytes,
                      size_bytes);
}

std::vector<std::string> evict_units(const Store& store, EvictionReport& report) {
  std::vector<std::string> trashed_paths;
  std::erase_if(report.evicted, [&](const EvictedUnit& one) {
    if (one.is_young) {
      spdlog::warn("space is running out: evicting '{}', which was used within min_age",
                   one.unit.unit);
    }
    const Status moved = discard_unit(store, one.unit, AuditRecord::Event::kEvict, one.reason);
    // Even if the move has failed, some of the paths may be in trash.
    trashed_paths.insert(trashed_paths.end(), one.unit.paths.begin(), one.unit.paths.end());
    if (!moved) {
      spdlog::error("cannot evict '{}': {}; it stays", one.unit.unit,
                    std::strerror(moved.error().code()));
      report.bytes -= one.unit.bytes;
      report.files -= one.unit.files;
      return true;
    }
    return false;
  });
  return trashed_paths;
}

}  // namespace cacheshim
