// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/metrics_text.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "cacheshim_build.h"
#include "common/limit_rows.h"
#include "common/printable_text.h"
#include "fuse/mount.h"

namespace cacheshim {
namespace {

// Replaces backslashes, newlines and, in a label's value, quotes, as the format requires.
std::string escaped(std::string_view text, bool is_label) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || (c == '"' && is_label)) result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

// Returns NAME="VALUE". Characters that are not printable, and bytes that are not UTF-8, become \xNN.
std::string label(std::string_view name, std::string_view value) {
  return fmt::format("{}=\"{}\"", name, escaped(printable(value), true));
}

class Exposition {
 public:
  explicit Exposition(std::string_view mount) : mount_(label("mount", mount)) {}

  // Begins a metric, to which all later samples belong. `type`: counter or gauge. The name of a counter ends with
  // _total.
  void begin(std::string name, const char* type, std::string_view help) {
    name_ = std::move(name);
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name_, escaped(help, false), type);
  }
  void add(std::uint64_t value) { text_ += fmt::format("{}{{{}}} {}\n", name_, mount_, value); }
  void add(std::uint64_t value, const std::string& labels) {
    text_ += fmt::format("{}{{{},{}}} {}\n", name_, mount_, labels, value);
  }
  // Adds a gauge with one sample.
  void gauge(const char* name, const char* help, std::uint64_t value) {
    begin(name, "gauge", help);
    add(value);
  }
  std::string take() { return std::move(text_); }

 private:
  const std::string mount_;
  std::string name_;
  std::string text_;
};

// Returns the metric's name. Prometheus expects the unit at the end, before _total.
std::string name_of_counter(const CounterRow& row) {
  constexpr std::string_view kBytes = "bytes_";
  std::string name(row.name);
  if (row.unit == CounterUnit::kBytes) name.erase(name.find(kBytes), kBytes.size()) += "_bytes";
  return fmt::format("cacheshim_{}{}", name, row.unit == CounterUnit::kNow ? "" : "_total");
}

void add_counters(const CounterValues& values, Exposition& metrics) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const CounterRow& row = kCounterRows[i];
    metrics.begin(name_of_counter(row), row.unit == CounterUnit::kNow ? "gauge" : "counter",
                  row.help);
    metrics.add(values[i]);
  }
}

void add_limits(const UserLimits& limits, Exposition& metrics) {
  const auto uses = limits.uses();
  struct Column {
    const char* name;
    const char* help;
    std::uint64_t UserLimits::Use::*value;
  };
  constexpr Column kColumns[] = {
      {"used", "current use of the limited resource by all users", &UserLimits::Use::total},
      {"highest_user", "highest current use by one user who has limits", &UserLimits::Use::highest},
      {"per_user", "the most that one user may use; 0: no limit", &UserLimits::Use::most},
      {"capacity", "the most that all users together may use; 0: no limit",
       &UserLimits::Use::capacity},
  };
  for (const Column& column : kColumns) {
    for (const bool is_size : {false, true}) {
      metrics.begin(fmt::format("cacheshim_limit_{}{}", column.name, is_size ? "_bytes" : ""),
                    "gauge", column.help);
      for (std::size_t i = 0; i < uses.size(); ++i) {
        if (kLimitRows[i].is_size() == is_size)
          metrics.add(uses[i].*column.value, label("limit", kLimitRows[i].key));
      }
    }
  }
  metrics.begin("cacheshim_limit_refused_total", "counter", "times that the limit was reached");
  for (std::size_t i = 0; i < uses.size(); ++i)
    metrics.add(uses[i].refused, label("limit", kLimitRows[i].key));
}

void add_remote(const RemoteEntries::State& remote, Exposition& metrics) {
  metrics.gauge("cacheshim_remote_used",
                "1 if the daemon uses the remote tier; 0 while the tier does not answer",
                remote.is_used ? 1 : 0);
  metrics.gauge("cacheshim_remote_known_entries",
                "entries in the remote tier, as far as this machine knows", remote.known);
  metrics.gauge("cacheshim_remote_unsent_entries",
                "published entries that are still to be sent to the remote tier", remote.unsent);
}

}  // namespace

CounterValues counters_of(Mount& mount) {
  return read_counters(mount.counters, {.hits_direct = mount.jobs.direct_opens(),
                                        .jobs_active = mount.jobs.active_count()});
}

std::string metrics_of(Mount& mount) {
  const MountOptions& options = mount.options;
  const Flights* const flights = mount.single_flight.flights();
  Exposition metrics(options.mount_point);
  metrics.begin("cacheshim_info", "gauge", "always 1; the labels describe the mount");
  metrics.add(1, fmt::format("{},{}", label("store", options.store_dir),
                             label("version", CACHESHIM_VERSION)));
  metrics.gauge("cacheshim_start_time_seconds",
                "when the daemon mounted the store, in seconds since 1970",
                static_cast<std::uint64_t>(mount.started));
  add_counters(counters_of(mount), metrics);
  metrics.gauge("cacheshim_store_full",
                "1 if publishing has stopped because the store's file system has no room",
                mount.publishing.room().is_full() ? 1 : 0);
  metrics.gauge("cacheshim_excluded_builders",
                "users for whose builds other users' processes do not wait now",
                flights != nullptr ? flights->excluded_users().size() : 0);
  add_limits(mount.limits, metrics);
  if (mount.remote) add_remote(mount.remote->state(), metrics);
  return metrics.take();
}

}  // namespace cacheshim
