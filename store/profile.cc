// SPDX-License-Identifier: Apache-2.0
#include "store/profile.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "common/job_id.h"
#include "common/route_table.h"
#include "store/toml_reader.h"

namespace cacheshim {
namespace {

constexpr std::int64_t kMaxEntryDepth = 16;
constexpr const char* kEvidence[] = {"run", "read", "doc", "guess"};

bool matches_any(const std::vector<std::string>& patterns, std::string_view name) {
  const std::string text(name);
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  });
}

bool is_variable_name(std::string_view text) {
  constexpr std::string_view kFirst = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
  if (text.empty() || kFirst.find(text.front()) == kFirst.npos) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return kFirst.find(c) != kFirst.npos || (c >= '0' && c <= '9');
  });
}

bool is_default_path(std::string_view text) {
  return (text.size() > 1 && text[0] == '/') || (text.size() > 2 && text.substr(0, 2) == "~/");
}

// A pattern is for names within a folder: it holds no '/' and is not empty.
std::vector<std::string> read_patterns(TomlReader& reader, std::string_view key) {
  auto patterns = reader.find_strings(key).value_or(std::vector<std::string>());
  for (const std::string& pattern : patterns) {
    if (!pattern.empty() && pattern.find('/') == pattern.npos) continue;
    reader.report(key, fmt::format("'{}' is no pattern of a file name", pattern));
  }
  return patterns;
}

void read_name(TomlReader& reader, Profile& profile) {
  const auto name = reader.find_string("name");
  if (!name) return reader.report("name", "missing; a profile needs the name of its folder");
  if (!is_job_id(*name) || name->front() == '.') {
    reader.report("name", fmt::format("'{}' is no folder name; allowed are letters, digits and "
                                      "._-, with no '.' in front",
                                      *name));
  }
  profile.name = *name;
}

void read_variables(TomlReader& reader, Profile& profile) {
  if (auto variable = reader.find_string("variable")) {
    if (!is_variable_name(*variable)) {
      reader.report("variable", fmt::format("'{}' is no name of a variable", *variable));
    }
    profile.variable = *std::move(variable);
  }
  profile.unless = reader.find_strings("unless").value_or(std::vector<std::string>());
  for (const std::string& name : profile.unless) {
    if (is_variable_name(name)) continue;
    reader.report("unless", fmt::format("'{}' is no name of a variable", name));
  }
}

void read_default_paths(TomlReader& reader, Profile& profile) {
  profile.default_paths = reader.find_strings("default_paths").value_or(std::vector<std::string>());
  for (const std::string& path : profile.default_paths) {
    if (is_default_path(path)) continue;
    reader.report("default_paths", fmt::format("'{}' must begin with / or ~/", path));
  }
}

void read_evidence(TomlReader& reader, Profile& profile) {
  profile.evidence = reader.find_string("evidence").value_or("");
  if (std::find(std::begin(kEvidence), std::end(kEvidence), profile.evidence) !=
      std::end(kEvidence)) {
    return;
  }
  reader.report("evidence", "must be one of run, read, doc, guess");
}

void read_entry(TomlReader& root, Profile& profile, TomlProblem& problem) {
  const toml::table* table = root.find_table("entry");
  if (table == nullptr) return;
  TomlReader entry(*table, "entry", problem);
  const std::int64_t depth = entry.find_integer("depth").value_or(1);
  if (depth < 1 || depth > kMaxEntryDepth) {
    entry.report("depth", fmt::format("must be from 1 to {}", kMaxEntryDepth));
  }
  profile.entry_depth = static_cast<unsigned>(depth);
  profile.complete = read_patterns(entry, "complete");
  profile.complete_single = read_patterns(entry, "complete_single");
  profile.scratch = read_patterns(entry, "scratch");
  profile.paths_in = read_patterns(entry, "paths_in");
  entry.finish();
}

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file.is_open()) return std::nullopt;
  if (file.peek() != file.eof()) text << file.rdbuf();
  if (file.bad() || !text) return std::nullopt;
  return text.str();
}

// The profiles of one folder, by name; what is wrong goes to `refused`.
std::map<std::string, Profile> load_folder(const std::string& folder,
                                           std::vector<ProfileError>& refused) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".toml") files.push_back(at->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    refused.push_back({fmt::format("{}: {}", folder, error.message())});
  }
  std::sort(files.begin(), files.end());

  std::map<std::string, Profile> profiles;
  for (const std::filesystem::path& path : files) {
    const auto text = read_file(path);
    if (!text) {
      refused.push_back({fmt::format("{}: cannot be read", path.string())});
      continue;
    }
    auto parsed = parse_profile(*text, path.string());
    if (auto* problem = std::get_if<ProfileError>(&parsed)) {
      refused.push_back(std::move(*problem));
      continue;
    }
    auto& profile = std::get<Profile>(parsed);
    const std::string name = profile.name;
    if (!profiles.try_emplace(name, std::move(profile)).second) {
      refused.push_back({fmt::format("{}: another profile of this folder is named '{}' already",
                                     path.string(), name)});
    }
  }
  return profiles;
}

std::string join(const std::vector<std::string>& texts, char delimiter) {
  std::string joined;
  for (const std::string& text : texts) {
    if (!joined.empty()) joined.push_back(delimiter);
    joined += text;
  }
  return joined;
}

// The strings of a route table, each kept once.
class StringPool {
 public:
  explicit StringPool(std::size_t start) : start_(start) { (void)add(""); }

  std::uint32_t add(const std::string& text) {
    const auto [at, added] = offsets_.try_emplace(text, start_ + bytes_.size());
    if (added) bytes_.append(text).push_back('\0');
    return static_cast<std::uint32_t>(at->second);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::size_t start_;
  std::string bytes_;
  std::map<std::string, std::size_t> offsets_;
};

}  // namespace

bool Profile::is_scratch(std::string_view file_name) const {
  return matches_any(scratch, file_name);
}

bool Profile::completes(std::string_view file_name) const {
  return matches_any(complete, file_name);
}

bool Profile::completes_alone(std::string_view file_name) const {
  return matches_any(complete_single, file_name);
}

bool Profile::holds_paths(std::string_view file_name) const {
  return matches_any(paths_in, file_name);
}

std::variant<Profile, ProfileError> parse_profile(std::string_view text, std::string_view origin) {
  TomlProblem problem(origin);
  const auto table = parse_toml(text, problem);
  if (!table) return ProfileError{problem.message()};
  Profile profile;
  TomlReader reader(*table, "", problem);
  read_name(reader, profile);
  read_variables(reader, profile);
  read_default_paths(reader, profile);
  read_entry(reader, profile, problem);
  read_evidence(reader, profile);
  reader.finish();
  if (problem) return ProfileError{problem.message()};
  return profile;
}

ProfileSet load_profiles(const std::vector<std::string>& folders) {
  ProfileSet set;
  std::map<std::string, Profile> all;
  for (const std::string& folder : folders) {
    std::map<std::string, Profile> found = load_folder(folder, set.refused);
    found.merge(all);  // keeps what `found` has already
    all = std::move(found);
  }
  for (auto& [name, profile] : all) set.profiles.push_back(std::move(profile));
  return set;
}

std::string compile_routes(const std::vector<Profile>& profiles) {
  // A profile without default paths still has a variable to set.
  std::vector<std::pair<const Profile*, std::string>> routes;
  for (const Profile& profile : profiles) {
    if (profile.default_paths.empty()) routes.emplace_back(&profile, "");
    for (const std::string& path : profile.default_paths) routes.emplace_back(&profile, path);
  }
  StringPool strings(sizeof(RouteTableHeader) + routes.size() * sizeof(RouteRecord));
  std::string records;
  for (const auto& [profile, path] : routes) {
    const RouteRecord record{strings.add(profile->name), strings.add(profile->variable),
                             strings.add(join(profile->unless, ':')), strings.add(path)};
    char bytes[sizeof record];
    std::memcpy(bytes, &record, sizeof record);
    records.append(bytes, sizeof bytes);
  }
  const std::size_t size = sizeof(RouteTableHeader) + records.size() + strings.bytes().size();
  const RouteTableHeader header{kRouteTableMagic, kRouteTableVersion,
                                static_cast<std::uint32_t>(size),
                                static_cast<std::uint32_t>(routes.size())};
  std::string table(sizeof header, '\0');
  std::memcpy(table.data(), &header, sizeof header);
  return table + records + strings.bytes();
}

}  // namespace cacheshim
