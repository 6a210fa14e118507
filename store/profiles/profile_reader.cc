// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "common/job_id.h"
#include "store/profiles/profile.h"
#include "store/sys/toml_reader.h"

// Profiles as TOML (docs/profiles.md).
namespace cacheshim {
namespace {

constexpr std::array kEvidenceRead = {Evidence::kRun, Evidence::kRead, Evidence::kDoc,
                                      Evidence::kGuess};

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

// Reads patterns of names within a directory. Reports a pattern that is empty or contains '/'.
std::vector<std::string> read_name_patterns(TomlReader& reader, std::string_view key) {
  auto patterns = reader.find_strings(key).value_or(std::vector<std::string>());
  for (const std::string& pattern : patterns) {
    if (!pattern.empty() && pattern.find('/') == pattern.npos) continue;
    reader.report(key, fmt::format("'{}' is not a pattern of a file name", pattern));
  }
  return patterns;
}

void check_path_pattern(TomlReader& reader, std::string_view key, const std::string& pattern) {
  const bool is_short = std::count(pattern.begin(), pattern.end(), '/') <
                        static_cast<std::ptrdiff_t>(PathPattern::kMostParts);
  if (PathPattern::is_valid(pattern) && is_short) return;
  reader.report(key,
                fmt::format("'{}' is not a pattern of a path below the cache's directory", pattern));
}

void read_name(TomlReader& reader, Profile& profile) {
  const auto name = reader.find_string("name");
  if (!name) return reader.report("name", "missing; a profile needs the name of its directory");
  if (!is_job_id(*name) || name->front() == '.') {
    reader.report("name", fmt::format("'{}' is not a directory name; use letters, digits and "
                                      "._-, with no '.' in front",
                                      *name));
  }
  profile.name = *name;
}

void read_variables(TomlReader& reader, Profile& profile) {
  if (auto variable = reader.find_string("variable")) {
    if (!is_variable_name(*variable)) {
      reader.report("variable", fmt::format("'{}' is not the name of a variable", *variable));
    }
    profile.variable = *std::move(variable);
  }
  profile.set_variable = reader.find_bool("set_variable").value_or(true);
  if (!profile.set_variable && profile.variable.empty()) {
    reader.report("set_variable", "has no effect: there is no 'variable' to set");
  }
  profile.unless = reader.find_strings("unless").value_or(std::vector<std::string>());
  for (const std::string& name : profile.unless) {
    if (is_variable_name(name)) continue;
    reader.report("unless", fmt::format("'{}' is not the name of a variable", name));
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
  const std::string text = reader.find_string("evidence").value_or("");
  const auto known = std::find_if(kEvidenceRead.begin(), kEvidenceRead.end(),
                                  [&](Evidence evidence) { return to_string(evidence) == text; });
  if (known != kEvidenceRead.end()) {
    profile.evidence = *known;
  } else {
    reader.report("evidence", "must be one of run, read, doc, guess");
  }
}

// Reads the endings of file names. An ending may be empty.
std::vector<std::string> read_endings(TomlReader& reader) {
  auto endings = reader.find_strings("files");
  if (!endings) return {};
  if (endings->empty()) reader.report("files", "must name at least one ending");
  for (const std::string& ending : *endings) {
    if (ending.find('/') != ending.npos) {
      reader.report("files", fmt::format("'{}' is not an ending of a file name", ending));
    }
  }
  return *std::move(endings);
}

// Reads one of two forms, each with one '*' and no other pattern character: a path below the cache's directory, with
// the '*' in the file's name; or "./" and a path below the directory that contains the entry, with the '*' in any
// component.
std::string read_built_under(TomlReader& reader) {
  auto text = reader.find_string("built_under");
  if (!text) return "";
  const bool is_beside = text->starts_with("./");
  const auto star = text->find_first_of("*?[\\");
  const bool is_star = star != text->npos && (*text)[star] == '*';
  const bool leads_up = ("/" + *text + "/").find("/../") != std::string::npos;
  if (!PathPattern::is_valid(*text) || !is_star || leads_up ||
      text->find_first_of(is_beside ? "*?[\\" : "*?[\\/", star + 1) != text->npos) {
    reader.report("built_under",
                  fmt::format("'{}' is not the path of a file with one '*' in its name", *text));
  }
  return *std::move(text);
}

EntryRule read_rule(const toml::table& table, TomlProblem& problem) {
  TomlReader entry(table, "entry", problem);
  const std::string path = entry.find_string("path").value_or("");
  check_path_pattern(entry, "path", path);
  EntryRule rule{.path = PathPattern(path), .files = read_endings(entry)};
  rule.complete = read_name_patterns(entry, "complete");
  rule.complete_single = read_name_patterns(entry, "complete_single");
  rule.complete_at_end = read_name_patterns(entry, "complete_at_end");
  rule.paths_in = read_name_patterns(entry, "paths_in");
  rule.renamed = entry.find_bool("renamed").value_or(false);
  rule.built_under = read_built_under(entry);
  rule.one_by_one = entry.find_bool("one_by_one").value_or(false);
  rule.renewed = entry.find_bool("renewed").value_or(false);
  if (rule.renamed && !rule.built_under.empty()) {
    entry.report("built_under", "cannot be combined with 'renamed': each shows by itself when an entry is complete");
  }
  if (!rule.is_directory() && !rule.complete_single.empty()) {
    entry.report("complete_single", "is only for directories; use 'complete' for an entry of files");
  }
  entry.finish();
  return rule;
}

void read_entries(TomlReader& root, Profile& profile, TomlProblem& problem) {
  for (const toml::table* table : root.find_tables("entry")) {
    profile.entries.push_back(read_rule(*table, problem));
  }
}

void read_classes(TomlReader& root, Profile& profile, TomlProblem& problem) {
  const toml::table* table = root.find_table("class");
  if (table == nullptr) return;
  TomlReader reader(*table, "class", problem);
  for (const NameClassRow& row : kNameClasses) {
    if (row.name_class == NameClass::kPrivate) continue;
    for (const std::string& text : reader.find_strings(row.name).value_or(std::vector<std::string>())) {
      check_path_pattern(reader, row.name, text);
      profile.classes.emplace_back(row.name_class, PathPattern(text));
    }
  }
  reader.finish();
}

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file.is_open()) return std::nullopt;
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (file.bad() || !text) return std::nullopt;
  return text.str();
}

// Returns the valid profiles of one directory, by name. Adds the errors of the other files to
// `refused`.
std::map<std::string, Profile> load_directory(const std::string& directory,
                                              std::vector<ProfileError>& refused) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".toml") files.push_back(at->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    refused.push_back({fmt::format("{}: {}", directory, error.message())});
  }
  std::sort(files.begin(), files.end());

  std::map<std::string, Profile> profiles;
  for (const std::filesystem::path& path : files) {
    auto parsed = load_profile(path.string());
    if (auto* problem = std::get_if<ProfileError>(&parsed)) {
      refused.push_back(std::move(*problem));
      continue;
    }
    auto& profile = std::get<Profile>(parsed);
    const std::string name = profile.name;
    if (!profiles.try_emplace(name, std::move(profile)).second) {
      refused.push_back({fmt::format("{}: another profile of this directory is named '{}' already",
                                     path.string(), name)});
    }
  }
  return profiles;
}

}  // namespace

std::variant<Profile, ProfileError> parse_profile(std::string_view text, std::string_view origin) {
  TomlProblem problem(origin);
  const auto table = parse_toml(text, problem);
  if (!table) return ProfileError{problem.message()};
  Profile profile;
  profile.origin = origin;
  TomlReader reader(*table, "", problem);
  read_name(reader, profile);
  read_variables(reader, profile);
  read_default_paths(reader, profile);
  read_entries(reader, profile, problem);
  read_classes(reader, profile, problem);
  profile.mkstemp = reader.find_bool("mkstemp").value_or(false);
  read_evidence(reader, profile);
  reader.finish();
  if (problem) return ProfileError{problem.message()};
  return profile;
}

std::variant<Profile, ProfileError> load_profile(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return ProfileError{fmt::format("{}: cannot be read", path)};
  return parse_profile(*text, path);
}

ProfileSet load_profiles(const std::vector<std::string>& directories) {
  ProfileSet set;
  std::map<std::string, Profile> all;
  for (const std::string& directory : directories) {
    std::map<std::string, Profile> found = load_directory(directory, set.refused);
    found.merge(all);  // keeps the profiles that `found` already has
    all = std::move(found);
  }
  for (auto& [name, profile] : all) set.profiles.push_back(std::move(profile));
  return set;
}

}  // namespace cacheshim
