// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <set>

#include "store/publish/publish_stage.h"
#include "store/sys/sys.h"
#include "store/sys/tree_walk.h"
#include "store/sys/whiteout.h"

// Selects the units of a layer that are to be published, by the profiles' rules for complete entries.
namespace cacheshim {
namespace {

// Returns the layer's own names in a directory, without cacheshim's markers.
std::vector<sys::DirEntry> own_names(const Overlay& overlay, const std::string& path)
    REQUIRES_SHARED(overlay.mutex()) {
  const auto directory =
      sys::open_beneath(overlay.upper(), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!directory) return {};
  auto entries = sys::list_dir(directory->get());
  if (!entries) return {};
  std::erase_if(*entries, [](const auto& entry) { return is_reserved_name(entry.name); });
  return *std::move(entries);
}

bool layer_has(const Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex()) {
  return static_cast<bool>(sys::open_beneath(overlay.upper(), path, O_PATH | O_NOFOLLOW));
}

}  // namespace

// Whether a directory of the layer contains a file that would be published.
bool Publisher::has_publishable_file(const Overlay& overlay, const std::string& directory) const {
  const auto names = own_names(overlay, directory);
  return std::any_of(names.begin(), names.end(), [&](const sys::DirEntry& entry) {
    return !entries_.is_beside_entry(join_path(directory, entry.name));
  });
}

// Whether `path` is the lock file under which the entry is built.
bool Publisher::is_own_lock(const EntryRef& ref, std::string_view path) const {
  return !ref.rule->built_under.empty() && entries_.entry_built_under(path) == ref.entry;
}

bool Publisher::is_complete_directory(const Overlay& overlay, const EntryRef& ref,
                                      bool at_end) const {
  const std::string directory(ref.entry);
  std::vector<std::string> names;
  for (sys::DirEntry& entry : own_names(overlay, directory)) {
    const NameClassRow& row = row_of(entries_.class_of(join_path(directory, entry.name)));
    // A baton means that a process is building in the directory. The entry's own build lock does not count: its release
    // ends the build, and its file may still exist at that time.
    if (row.locks_by_existence && !is_own_lock(ref, join_path(directory, entry.name))) {
      return false;
    }
    if (!entries_.is_beside_entry(join_path(directory, entry.name))) {
      names.push_back(std::move(entry.name));
    }
  }
  if (names.empty()) return false;
  if (ref.rule->needs_no_name()) return true;
  const auto completes = [&](const std::string& name) {
    return ref.rule->completes(name) || (at_end && ref.rule->completes_at_end(name));
  };
  if (std::any_of(names.begin(), names.end(), completes)) return true;
  if (names.size() != 1 || !ref.rule->completes_alone(names.front())) return false;
  const auto merged = overlay.list(directory);
  if (!merged) return false;
  return 1 == std::count_if(merged->begin(), merged->end(), [&](const ListedEntry& entry) {
           return !entries_.is_beside_entry(join_path(directory, entry.name));
         });
}

bool Publisher::is_complete(const Overlay& overlay, const EntryRef& ref, bool at_end) const {
  if (ref.rule->is_directory()) return is_complete_directory(overlay, ref, at_end);
  bool has_all = true;
  bool has_some = false;  // whether the layer has a file that would be published
  bool has_completing_file = false;
  for (const std::string& path : ref.file_paths()) {
    if (!layer_has(overlay, path)) {
      has_all = false;
      continue;
    }
    const std::string_view name = base_name(path);
    has_some = has_some || !entries_.is_beside_entry(path);
    has_completing_file = has_completing_file || ref.rule->completes(name) ||
                          (at_end && ref.rule->completes_at_end(name));
  }
  return has_some && (ref.rule->needs_no_name() ? has_all : has_completing_file);
}

bool Publisher::is_complete_in_base(const Overlay& overlay, const EntryRef& ref) const {
  const std::string entry(ref.entry);
  const auto directory =
      sys::open_beneath(store_.base(), entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!directory) return false;
  const EntryRule& rule = *ref.rule;
  if (rule.needs_no_name() && rule.complete_at_end.empty()) return true;
  const auto entries = sys::list_dir(directory->get());
  const auto completes = [&](const sys::DirEntry& found) REQUIRES_SHARED(overlay.mutex()) {
    const std::string& name = found.name;
    if (!rule.completes(name) && !rule.completes_alone(name) && !rule.completes_at_end(name)) {
      return false;
    }
    const auto shown = overlay.find(join_path(entry, name));
    return shown && !shown->in_upper;
  };
  return entries && std::any_of(entries->begin(), entries->end(), completes);
}

// Whether the event `arrival` at `path` may have completed the entry `ref`, to which `path` belongs.
bool Publisher::may_complete(const EntryRef& ref, const std::string& path, Arrival arrival) const {
  if (!ref.profile->may_publish_early()) return false;
  if (arrival == Arrival::kBuilt) return !ref.rule->built_under.empty();
  const bool is_unlocked = arrival == Arrival::kUnlocked;
  if (is_unlocked && is_own_lock(ref, path)) return true;
  if (!ref.rule->says_when_complete()) return false;
  const bool is_baton = row_of(entries_.class_of(path)).locks_by_existence;
  if (is_unlocked || is_baton) return is_unlocked && is_baton;
  if (arrival == Arrival::kClosed && ref.rule->renamed) return false;
  if (ref.is_entry_directory()) return arrival == Arrival::kNamed;
  const std::string_view name = base_name(path);
  if (ref.rule->completes(name)) return true;  // a scratch name may complete the entry
  if (entries_.is_beside_entry(path)) return false;
  if (!ref.rule->is_directory()) return ref.rule->needs_no_name();
  return ref.rule->completes_alone(name);
}

std::string Publisher::completed_entry(const Overlay& overlay, const std::string& path,
                                       Arrival arrival) const {
  const auto ref = entries_.find(path);
  if (!ref || !may_complete(*ref, path, arrival)) return "";
  const ReaderLock lock(overlay.mutex());
  return overlay.has_layer() && is_complete(overlay, *ref, false) ? ref->unit() : "";
}

// Whether the entry must be published now:
// 1. If the entry's names show when it is complete, and its profile is not a guess: when it is complete.
// 2. Otherwise, when the job has succeeded. Unless the profile is a guess, an entry with
//    `built_under` must then also have the files that its rule requires.
bool Publisher::is_due(const Overlay& overlay, const EntryRef& ref, bool job_succeeded) const {
  if (ref.profile->may_publish_early() && ref.rule->says_when_complete()) {
    return is_complete(overlay, ref, true);
  }
  const bool is_half_known = ref.profile->may_publish_early() && !ref.rule->built_under.empty();
  return job_succeeded && (!is_half_known || is_complete(overlay, ref, true));
}

std::vector<Publisher::Candidate> Publisher::units_of(const Overlay& overlay,
                                                      bool job_succeeded) const {
  const ReaderLock lock(overlay.mutex());
  std::vector<Candidate> units;
  // the entries of files that have been added: each of their files leads to the same unit
  std::set<std::string> seen;
  const auto add = [&](const std::string& unit, bool is_due) { units.push_back({unit, is_due}); };
  const auto visit = [&](const WalkedDirectory& directory) REQUIRES_SHARED(overlay.mutex()) {
    for (const sys::DirEntry& entry : directory.entries) {
      const std::string path = join_path(directory.path, entry.name);
      const bool is_dir = is_directory(directory.fd, entry);
      if (is_reserved_name(entry.name) || entries_.is_beside_entry(path)) continue;
      // Neither this object nor anything below it can be published. publish() reports this, and the
      // walk does not descend.
      if (is_too_deep_for_base(path)) {
        add(path, true);
        continue;
      }
      const auto ref = entries_.find(path);
      if (ref && is_dir && ref->is_entry_directory()) {
        if (has_publishable_file(overlay, path)) add(path, is_due(overlay, *ref, job_succeeded));
      } else if (ref && !is_dir && !ref->rule->is_directory()) {
        if (seen.insert(ref->unit()).second) {
          add(ref->unit(), is_due(overlay, *ref, job_succeeded));
        }
      } else if (is_dir && (directory.path.empty() ||
                            entries_.find_profile(path.substr(0, path.find('/'))))) {
        directory.further.push_back(entry.name);  // the path is above the level of the entries
      } else {
        add(path, job_succeeded);
      }
    }
    return Status();
  };
  if (overlay.has_layer())
    (void)walk_tree(overlay.upper(), "", visit);  // skips what it cannot read
  return units;
}

}  // namespace cacheshim
