// SPDX-License-Identifier: Apache-2.0
#include "learn/cache_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "learn/entry_groups.h"
#include "learn/name_shapes.h"
#include "store/profiles/path_pattern.h"

namespace cacheshim::learn {
namespace {

constexpr std::size_t kMostExamples = 3;
constexpr std::size_t kMostPatterns = 20;  // the most patterns of one kind

template <class Paths>
std::string examples(const Paths& paths) {
  std::string text;
  std::size_t count = 0;
  for (const std::string& path : paths) {
    if (count++ < kMostExamples) text += (text.empty() ? "" : ", ") + path;
  }
  if (count > kMostExamples) text += fmt::format(" and {} more", count - kMostExamples);
  return text;
}

class Finder {
 public:
  explicit Finder(const Evidence& evidence)
      : evidence_(evidence),
        first_(replay(evidence.first, {})),
        second_(evidence.second ? replay(*evidence.second, first_.files) : History()) {}

  CacheFacts find() {
    find_locks();
    find_batons();
    find_scratch();
    std::set<std::string> left_out = first_.locked;
    for (const std::string& path : find_shared()) left_out.insert(path);
    const EntryGroups groups = group_entries(first_.files, left_out);
    for (const auto& [pattern, group] : groups.by_pattern) {
      if (facts_.entries.size() < kMostPatterns) add_entries(pattern, group);
    }
    if (groups.by_pattern.size() > kMostPatterns) {
      note(fmt::format("{} further patterns of entries are left out.",
                       groups.by_pattern.size() - kMostPatterns));
    }
    if (!groups.others.empty()) {
      note(fmt::format("These files fit no entry. Each is published at the job's success: {}",
                       examples(groups.others)));
    }
    add_second_run();
    facts_.has_files = !first_.files.empty() || !first_.gone.empty();
    facts_.is_closed_to_others = files_ > 0 && closed_ == files_;
    sort_entries();
    return std::move(facts_);
  }

 private:
  // Puts rules for deeper paths first, because the first rule that matches applies.
  void sort_entries() {
    const auto depth = [](const EntryFacts& entry) {
      return std::count(entry.path.begin(), entry.path.end(), '/');
    };
    std::stable_sort(facts_.entries.begin(), facts_.entries.end(),
                     [&](const auto& a, const auto& b) { return depth(a) > depth(b); });
  }

  void note(std::string text) { facts_.notes.push_back(std::move(text)); }

  bool fits_a_file(const std::string& pattern, const std::set<std::string>& but) const {
    return std::any_of(first_.files.begin(), first_.files.end(), [&](const auto& file) {
      return !but.contains(file.first) && matches_name(pattern, name_of(file.first));
    });
  }

  // Returns one pattern that matches the names of all these paths and of no other file. If there is no
  // such pattern, returns a pattern for each name, but at most kMostPatterns patterns.
  std::vector<std::string> patterns_of(const std::set<std::string>& paths) const {
    std::set<std::string> names;
    for (const std::string& path : paths) names.insert(name_of(path));
    const auto common = common_pattern(names);
    if (common && !fits_a_file(*common, paths)) return {*common};
    std::vector<std::string> patterns;
    for (const std::string& name : names) {
      if (patterns.size() < kMostPatterns) patterns.push_back(literal(name));
    }
    return patterns;
  }

  void find_locks() {
    for (const std::string& pattern : patterns_of(first_.locked)) {
      std::set<std::string> seen;
      for (const std::string& path : first_.locked) {
        if (matches_name(pattern, name_of(path))) seen.insert(path);
      }
      facts_.locks.push_back({pattern, fmt::format("locked: {}", examples(seen))});
    }
  }

  // Requires that the name contain "lock". A failed open with O_EXCL would be better evidence, but the kernel itself
  // answers it, without a request to the daemon.
  bool is_baton(const History::Gone& gone) const {
    const std::string name = name_of(gone.path);
    return gone.is_exclusive && gone.to.empty() && !first_.locked.contains(gone.path) &&
           name.find("lock") != name.npos;
  }

  void find_batons() {
    std::set<std::string> paths;
    for (const History::Gone& gone : first_.gone) {
      if (is_baton(gone)) paths.insert(gone.path);
    }
    for (const std::string& pattern : patterns_of(paths)) {
      facts_.batons.push_back(
          {pattern, fmt::format("created with O_EXCL and removed: {}", examples(paths))});
    }
  }

  // Returns the shortest leading part of `path` that does not exist after the run: a temporary
  // directory, or the file itself. Returns "" if `path` exists.
  std::string vanished_part(const std::string& path) const {
    std::size_t end = 0;
    do {
      end = std::min(path.find('/', end + 1), path.size());
      if (!first_.files.contains(path.substr(0, end))) return path.substr(0, end);
    } while (end < path.size());
    return "";
  }

  void find_scratch() {
    std::vector<TemporaryName> names;
    std::set<std::string> paths;
    for (const History::Gone& gone : first_.gone) {
      const std::string path = vanished_part(gone.path);
      if (path.empty() || is_baton(gone) || first_.locked.contains(gone.path) ||
          !paths.insert(path).second)
        continue;
      names.push_back(
          {name_of(path), path == gone.path && !gone.to.empty() ? name_of(gone.to) : ""});
    }
    for (const std::string& shape : shapes_of(names, first_.threads)) {
      std::set<std::string> seen;
      for (const std::string& path : paths) {
        if (matches_name(shape, name_of(path))) seen.insert(path);
      }
      if (shape == "*" || fits_a_file(shape, {})) {
        note(fmt::format("No pattern separates these temporary names from names that stay: {}",
                         examples(seen)));
        continue;
      }
      facts_.scratch.push_back({shape, fmt::format("renamed or removed: {}", examples(seen))});
    }
  }

  // Returns the files that were read, and that were also rewritten in place or replaced.
  std::set<std::string> find_shared() {
    std::set<std::string> paths;
    for (const History* run : {&first_, &std::as_const(second_)}) {
      for (const auto& [path, count] : run->written_again) {
        const bool is_read = first_.read.contains(path) || second_.read.contains(path);
        if (is_read && first_.files.contains(path) && !first_.locked.contains(path))
          paths.insert(path);
      }
    }
    if (!paths.empty()) {
      note(fmt::format(
          "Read and written again. Each job keeps its own, and the first one published stays; a profile whose "
          "evidence is read or run may have them in class shared (docs/locks.md): {}",
          examples(paths)));
    }
    return paths;
  }

  void add_entries(const std::string& pattern, const EntryGroup& group) {
    EntryFacts entry;
    entry.path = pattern;
    std::vector<std::string> names;
    for (const auto& [name, files] : group.members) names.push_back(name);
    entry.seen = fmt::format("{} seen: {}", names.size(), examples(names));
    for (const auto& [name, files] : group.members) {
      for (const std::string& path : files) {
        if (first_.files.at(path).arrival == Arrival::kInPlace) entry.is_renamed = false;
      }
    }
    if (!group.is_directory) entry.endings = endings_of(group);
    if (group.is_directory) add_completion(group, entry);
    add_contents(group, entry);
    add_flight(group, entry);
    if (!entry.is_renamed && entry.complete.empty() && entry.complete_single.empty()) {
      entry.notes.push_back(
          "Written in place, without a rename: nothing shows when a file is complete, so the entry is "
          "published at the job's success only.");
    }
    facts_.entries.push_back(std::move(entry));
  }

  // Returns the endings of the files that form an entry. The ending of the file that was completed last is first,
  // because the publisher adds the file with the first ending last. An empty ending is at the end of the list, because
  // it matches all names.
  std::vector<std::string> endings_of(const EntryGroup& group) const {
    std::vector<std::string> endings;
    for (const auto& [entry, files] : group.members) {
      if (files.size() == 1) continue;
      for (auto path = files.rbegin(); path != files.rend(); ++path) {
        const std::string ending = path->substr(entry.size());
        if (std::find(endings.begin(), endings.end(), ending) == endings.end())
          endings.push_back(ending);
      }
    }
    std::stable_sort(endings.begin(), endings.end(),
                     [](const auto& a, const auto& b) { return a.size() > 0 && b.empty(); });
    if (endings.empty()) endings.emplace_back();
    return endings;
  }

  // Adds patterns for the names of the files that complete an entry: in each entry, the file that was renamed into the
  // entry's directory last.
  void add_completion(const EntryGroup& group, EntryFacts& entry) const {
    std::set<std::string> last;
    std::set<std::string> alone;
    for (const auto& [directory, files] : group.members) {
      const File& file = first_.files.at(files.back());
      // In this case, the rename of the directory completes the entry.
      if (file.arrival == Arrival::kWithDirectory) return;
      if (file.arrival == Arrival::kInPlace) return;
      const std::string& path = files.back();
      // A file in a subdirectory does not complete the entry.
      if (path.find('/', directory.size() + 1) != path.npos) continue;
      (files.size() == 1 ? alone : last).insert(name_of(path));
    }
    const auto add = [&](const std::set<std::string>& names, const char* how,
                         std::vector<Observed>& to) {
      if (const auto pattern = common_pattern(names))
        to.push_back({*pattern, fmt::format("{}: {}", how, examples(names))});
    };
    add(last, "renamed there last", entry.complete);
    add(alone, "the only file, renamed there", entry.complete_single);
    if (entry.complete.empty() && !last.empty()) {
      entry.notes.push_back(
          fmt::format("The names of the last files have nothing in common: {}", examples(last)));
    }
  }

  void add_contents(const EntryGroup& group, EntryFacts& entry) {
    std::set<std::string> holders;
    for (const auto& [name, files] : group.members) {
      for (const std::string& path : files) {
        const auto content = evidence_.read(path);
        if (!content) continue;
        ++files_;
        closed_ += (content->mode & 077) == 0 ? 1U : 0U;
        const bool is_json = path.ends_with(".json");
        if (is_json && content->text.find('"' + evidence_.directory + '/') != std::string::npos) {
          holders.insert(name_of(path));
        }
      }
    }
    if (const auto pattern = common_pattern(holders)) {
      entry.paths_in.push_back({*pattern, fmt::format("holds paths below {}: {}",
                                                      evidence_.directory, examples(holders))});
    }
  }

  void add_flight(const EntryGroup& group, EntryFacts& entry) const {
    if (!group.is_directory) return;
    std::set<std::string> names;
    for (const auto& [directory, files] : group.members) {
      for (const std::string& path : files) {
        if (first_.missed.contains(path)) names.insert(name_of(path));
      }
    }
    if (names.empty()) return;
    std::map<std::string, std::set<std::string>> by_extension;
    for (const std::string& name : names)
      by_extension[name.substr(std::min(name.rfind('.'), name.size()))].insert(name);
    std::set<std::string> all;
    for (const auto& [extension, same] : by_extension) {
      if (const auto pattern = common_pattern(same)) all.insert(*pattern);
    }
    for (const std::string& name : all) {
      entry.flight.push_back(
          {name, fmt::format("looked up and absent before it was made: {}", examples(names))});
    }
  }

  void add_second_run() {
    if (!evidence_.second) return;
    std::set<std::string> read;
    std::set<std::string> made;
    for (const std::string& path : second_.read) {
      if (first_.files.contains(path)) read.insert(path);
    }
    for (const auto& [path, file] : second_.files) {
      if (!file.is_directory && !first_.files.contains(path)) made.insert(path);
    }
    for (const auto& [path, count] : second_.written_again) {
      if (!first_.locked.contains(path)) made.insert(path);
    }
    note(fmt::format("The second run read {}",
                     read.empty() ? "none of the files: check that it was a hit" : examples(read)));
    if (!made.empty()) note(fmt::format("The second run wrote again, or made: {}", examples(made)));
  }

  const Evidence& evidence_;
  const History first_;
  const History second_;
  CacheFacts facts_;
  std::size_t files_ = 0;
  std::size_t closed_ = 0;
};

}  // namespace

CacheFacts find_facts(const Evidence& evidence) { return Finder(evidence).find(); }

}  // namespace cacheshim::learn
