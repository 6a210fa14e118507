// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "cli/configuration/units.h"
#include "cli/doctor/doctor.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "store/base/entry_sample.h"
#include "store/sys/paths.h"

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

// Returns the first kMostNamed names, separated by commas, with "…" if there are more.
std::string first_of(const std::vector<std::string>& names) {
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMostNamed));
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "),
                     names.size() > kMostNamed ? ", …" : "");
}

void check_recorded_paths(const DoctorContext& context, const EntrySample& sample,
                          const std::string& read, Findings& findings) {
  constexpr const char* kCheck = "recorded paths";
  if (sample.damaged.empty()) {
    return findings.ok(kCheck, context.store, read + ": all name files below the mount");
  }
  std::vector<std::string> paths;
  for (const DamagedFile& file : sample.damaged) paths.push_back(file.path);
  findings.warn(kCheck, context.store,
                fmt::format("{}: {} {} ({}): every job builds these entries anew", read,
                            format_count(paths.size(), "file", "files"), sample.damaged.front().why,
                            first_of(paths)),
                "'cacheshim verify --repair', or let the next job that builds them replace them");
}

void check_closed(const DoctorContext& context, const EntrySample& sample, const std::string& read,
                  Findings& findings) {
  constexpr const char* kCheck = "closed entries";
  if (sample.closed.empty()) {
    return findings.ok(kCheck, context.store, read + ": every user may read them");
  }
  const std::string& first = sample.closed.front();
  findings.warn(
      kCheck, context.store,
      fmt::format("{}: {} closed to other users by mode ({}): their jobs get EACCES there", read,
                  format_count(sample.closed.size(), "is", "are"), first_of(sample.closed)),
      fmt::format("'chmod -R a+rX {}' if nothing there is private",
                  join_path(context.store, first.substr(0, first.find('/')))));
}

}  // namespace

void check_entries(const DoctorContext& context, int base, const std::string& mount_path,
                   Findings& findings) {
  if (mount_path.empty()) return;
  const auto profiles =
      load_profiles(profile_directories(find_installation().profiles, context.config)).profiles;
  const EntryMap entries(profiles);
  const EntrySample sample =
      sample_entries(base, mount_path, entries, std::chrono::steady_clock::now() + kSampleTime);
  if (sample.entries == 0 && sample.closed.empty() && sample.is_whole) return;
  const std::string read = fmt::format(
      "{} read{}", format_count(sample.entries, "entry", "entries"),
      sample.is_whole
          ? ""
          : fmt::format(" (a sample, limited to {} s; 'cacheshim verify' reads all)", kSampleTime.count()));
  check_recorded_paths(context, sample, read, findings);
  // Only root can read entries that are closed to other users. A user's own mount has no other users.
  if (::geteuid() == 0) check_closed(context, sample, read, findings);
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
