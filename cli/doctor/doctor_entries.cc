// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <string>

#include "cli/configuration/units.h"
#include "cli/doctor/doctor.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "store/base/path_sample.h"

// Checks for entries of the base that no job can use.
namespace cacheshim::cli {
namespace {

// Short, because a job's prolog may wait for the doctor. Long enough to read some 50,000 entries
// from the page cache.
constexpr std::chrono::seconds kSampleTime{2};
constexpr std::size_t kMostNamed = 3;

std::string rejected_entry_text(const nlohmann::json& entry) {
  return fmt::format("'{}' ({})", text_of(entry, "entry"), rejection_text(entry));
}

}  // namespace

void check_recorded_paths(const DoctorContext& context, int base, const std::string& mount_path,
                          Findings& findings) {
  constexpr const char* kCheck = "recorded paths";
  if (mount_path.empty()) return;
  const auto profiles =
      load_profiles(profile_directories(find_installation().profiles, context.config)).profiles;
  const EntryMap entries(profiles);
  const PathSample sample = sample_recorded_paths(base, mount_path, entries,
                                                  std::chrono::steady_clock::now() + kSampleTime);
  if (sample.entries == 0 && sample.is_whole) return;
  const std::string read = fmt::format(
      "{} read{}", format_count(sample.entries, "entry", "entries"),
      sample.is_whole
          ? ""
          : fmt::format(" (a sample, limited to {} s; 'cacheshim verify' reads all)", kSampleTime.count()));
  if (sample.damaged.empty()) {
    return findings.ok(kCheck, context.store, read + ": all name files below the mount");
  }
  std::string named;
  for (std::size_t i = 0; i < sample.damaged.size() && i < kMostNamed; ++i) {
    named += (i == 0 ? "" : ", ") + sample.damaged[i].path;
  }
  findings.warn(
      kCheck, context.store,
      fmt::format("{}: {} {} ({}{}): every job builds these entries anew", read,
                  format_count(sample.damaged.size(), "file", "files"), sample.damaged.front().why,
                  named, sample.damaged.size() > kMostNamed ? ", …" : ""),
      "'cacheshim verify --repair', or let the next job that builds them replace them");
}

void check_rejected(const DoctorContext& context, Findings& findings) {
  constexpr const char* kCheck = "rejected entries";
  if (!context.status.contains("rejected")) return;  // an older daemon does not report them
  const auto& rejected = context.status["rejected"];
  if (!rejected.is_array() || rejected.empty()) {
    return findings.ok(kCheck, context.mount, "none: no job has built anew what it had opened");
  }
  std::string named;
  for (const auto& entry : rejected) {
    named += (named.empty() ? "" : ", ") + rejected_entry_text(entry);
  }
  findings.warn(kCheck, context.mount, "jobs open these entries and build them anew: " + named,
                "'cacheshim explain' says who published one; move it away if it is of no use");
}

}  // namespace cacheshim::cli
