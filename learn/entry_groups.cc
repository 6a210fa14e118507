// SPDX-License-Identifier: Apache-2.0
#include "learn/entry_groups.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "learn/name_shapes.h"

namespace cacheshim::learn {
namespace {

std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

struct EntryOfFile {
  std::string path;
  bool is_directory;
};

class Grouping {
 public:
  Grouping(const std::map<std::string, File>& files, const std::set<std::string>& left_out)
      : files_(files), left_out_(left_out) {
    for (const auto& [path, file] : files_) {
      if (file.is_directory) continue;
      const std::string above = parent_of(path);
      if (!above.empty()) siblings_[{parent_of(above), name_of(path)}].insert(above);
    }
  }

  EntryGroups group() {
    EntryGroups groups;
    for (const auto& [path, file] : files_) {
      if (!file.is_directory && !left_out_.contains(path)) in_order_.emplace_back(file.order, path);
    }
    std::sort(in_order_.begin(), in_order_.end());
    std::map<std::string, std::optional<EntryOfFile>> entries;
    std::set<std::string> around;  // directories that contain entries
    for (const auto& [order, path] : in_order_) {
      const auto& entry = entries[path] = entry_of(path);
      if (!entry) continue;
      for (auto above = parent_of(entry->path); !above.empty(); above = parent_of(above))
        around.insert(above);
    }
    for (const auto& [order, path] : in_order_) {
      const auto& entry = entries[path];
      if (!entry || (entry->is_directory && around.contains(entry->path))) {
        groups.others.push_back(path);
        continue;
      }
      EntryGroup& group = groups.by_pattern[pattern_of(*entry)];
      group.is_directory = entry->is_directory;
      group.members[entry->path].push_back(path);
    }
    return groups;
  }

 private:
  std::optional<EntryOfFile> entry_of(const std::string& path) const {
    const File& file = files_.at(path);
    if (file.arrival == Arrival::kWithDirectory) return EntryOfFile{file.renamed_directory, true};
    const auto parts = components(path);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto key = end_of_key(parts[i]);
      const bool is_file = i + 1 == parts.size();
      if (key)
        return EntryOfFile{path.substr(0, begin + (is_file ? *key : parts[i].size())), !is_file};
      begin += parts[i].size() + 1;
    }
    const std::string above = parent_of(path);
    const auto alike = siblings_.find({parent_of(above), name_of(path)});
    if (alike != siblings_.end() && alike->second.size() > 1) return EntryOfFile{above, true};
    return std::nullopt;
  }

  // Returns the pattern of an entry's path. The directories above the entry are literal, except for
  // fan-out directories (is_fan_out()).
  static std::string pattern_of(const EntryOfFile& entry) {
    const auto parts = components(entry.path);
    std::string pattern;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      pattern += is_fan_out(parts[i]) ? std::string(parts[i].size(), '?') : literal(parts[i]);
      pattern += '/';
    }
    return pattern + '*';
  }

  const std::map<std::string, File>& files_;
  const std::set<std::string>& left_out_;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> siblings_;
  std::vector<std::pair<std::size_t, std::string>> in_order_;
};

}  // namespace

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

EntryGroups group_entries(const std::map<std::string, File>& files,
                          const std::set<std::string>& left_out) {
  return Grouping(files, left_out).group();
}

}  // namespace cacheshim::learn
