// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>

#include "store/publish_stage.h"
#include "store/sys.h"
#include "store/whiteout.h"

// Which units of a layer are to be published: the profiles' rules of completeness.
namespace cacheshim {
namespace {

// The layer's own names in a folder, scratch names and our markers left out.
std::vector<sys::DirEntry> own_names(const Overlay& overlay, const std::string& path,
                                     const Profile* profile) {
  std::vector<sys::DirEntry> names;
  const auto folder = sys::open_beneath(overlay.upper(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!folder) return names;
  auto entries = sys::list_dir(folder->get());
  if (!entries) return names;
  for (sys::DirEntry& entry : *entries) {
    if (is_reserved_name(entry.name)) continue;
    if (profile != nullptr && profile->is_scratch(entry.name)) continue;
    names.push_back(std::move(entry));
  }
  return names;
}

}  // namespace

bool Publisher::is_complete(const Overlay& overlay, const EntryRef& ref) const {
  const auto names = own_names(overlay, std::string(ref.entry), ref.profile);
  for (const sys::DirEntry& entry : names) {
    if (ref.profile->completes(entry.name)) return true;
  }
  if (names.size() != 1 || !ref.profile->completes_alone(names.front().name)) return false;
  const auto merged = overlay.list(std::string(ref.entry));
  if (!merged) return false;
  std::size_t others = 0;
  for (const ListedEntry& entry : *merged) others += !ref.profile->is_scratch(entry.name);
  return others == 1;
}

std::string Publisher::completed_entry(const Overlay& overlay, const std::string& path) const {
  const auto ref = entries_.find(path);
  if (!ref || ref->rest.empty() || EntryMap::is_scratch(*ref)) return "";
  const std::string_view name = base_name(path);
  if (!ref->profile->completes(name) && !ref->profile->completes_alone(name)) return "";
  const std::shared_lock lock(overlay.mutex());
  return is_complete(overlay, *ref) ? std::string(ref->entry) : "";
}

std::vector<std::string> Publisher::units_of(const Overlay& overlay, bool job_succeeded,
                                             std::uint64_t& incomplete) const {
  const std::shared_lock lock(overlay.mutex());
  std::vector<std::string> units;
  const std::function<void(const std::string&)> visit = [&](const std::string& folder) {
    for (const sys::DirEntry& entry : own_names(overlay, folder, nullptr)) {
      const std::string path = join_path(folder, entry.name);
      const auto ref = entries_.find(path);
      if (ref && ref->rest.empty() && entry.type == DT_DIR) {
        const bool complete = is_complete(overlay, *ref);
        if (complete) units.push_back(path);
        if (!complete && !own_names(overlay, path, ref->profile).empty()) ++incomplete;
      } else if (entry.type == DT_DIR &&
                 (folder.empty() || entries_.find_profile(path.substr(0, path.find('/'))))) {
        visit(path);  // above the level of the entries
      } else if (job_succeeded) {
        units.push_back(path);
      } else {
        ++incomplete;
      }
    }
  };
  visit("");
  return units;
}

PublishReport Publisher::publish_all(Overlay& overlay, PublishHooks& hooks, bool job_succeeded,
                                     const Progress& progress) {
  PublishReport report;
  const auto units = units_of(overlay, job_succeeded, report.incomplete);
  std::uint64_t done = 0;
  for (const std::string& unit : units) {
    progress(done++, units.size());
    report += publish(overlay, unit, hooks);
  }
  progress(done, units.size());
  return report;
}

}  // namespace cacheshim
