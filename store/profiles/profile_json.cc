// SPDX-License-Identifier: Apache-2.0
#include "store/profiles/profile_json.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace cacheshim {
namespace {

using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;

constexpr std::array kEvidenceWritten = {Evidence::kGuess, Evidence::kDoc, Evidence::kRead,
                                         Evidence::kRun};

Json to_json(const EntryRule& rule) {
  return {{"path", rule.path.text()},
          {"files", rule.files},
          {"complete", rule.complete},
          {"complete_single", rule.complete_single},
          {"complete_at_end", rule.complete_at_end},
          {"renamed", rule.renamed},
          {"built_under", rule.built_under},
          {"one_by_one", rule.one_by_one},
          {"renewed", rule.renewed},
          {"paths_in", rule.paths_in}};
}

Json to_json(const Profile& profile) {
  Json json = {{"name", profile.name},
               {"file", profile.origin},
               {"variable", profile.variable},
               {"set_variable", profile.set_variable},
               {"unless", profile.unless},
               {"default_paths", profile.default_paths},
               {"evidence", to_string(profile.evidence)},
               {"mkstemp", profile.mkstemp}};
  json["entry"] = Json::array();
  for (const EntryRule& rule : profile.entries) json["entry"].push_back(to_json(rule));
  json["class"] = Json::object();
  for (const auto& [name_class, pattern] : profile.classes) {
    json["class"][std::string(to_string(name_class))].push_back(pattern.text());
  }
  return json;
}

// Throws Json::exception if a value has the wrong type, as does profile_from().
EntryRule rule_from(const Json& json) {
  EntryRule rule{.path = PathPattern(json.value("path", ""))};
  rule.files = json.value("files", Strings());
  rule.complete = json.value("complete", Strings());
  rule.complete_single = json.value("complete_single", Strings());
  rule.complete_at_end = json.value("complete_at_end", Strings());
  rule.renamed = json.value("renamed", false);
  rule.built_under = json.value("built_under", "");
  rule.one_by_one = json.value("one_by_one", false);
  rule.renewed = json.value("renewed", false);
  rule.paths_in = json.value("paths_in", Strings());
  return rule;
}

Profile profile_from(const Json& json) {
  Profile profile;
  profile.name = json.value("name", "");
  profile.origin = json.value("file", "");
  profile.variable = json.value("variable", "");
  profile.set_variable = json.value("set_variable", true);
  profile.unless = json.value("unless", Strings());
  profile.default_paths = json.value("default_paths", Strings());
  profile.mkstemp = json.value("mkstemp", false);
  for (const Evidence evidence : kEvidenceWritten) {
    if (json.value("evidence", "") == to_string(evidence)) profile.evidence = evidence;
  }
  for (const Json& rule : json.value("entry", Json::array())) {
    profile.entries.push_back(rule_from(rule));
  }
  const Json classes = json.value("class", Json::object());
  for (const NameClassRow& row : kNameClasses) {
    for (const std::string& pattern : classes.value(std::string(row.name), Strings())) {
      profile.classes.emplace_back(row.name_class, PathPattern(pattern));
    }
  }
  return profile;
}

}  // namespace

// Replaces bytes in file names and patterns that are not UTF-8, because dump() would otherwise throw.
std::string profiles_to_json(const std::vector<Profile>& profiles) {
  Json all = Json::array();
  for (const Profile& profile : profiles) all.push_back(to_json(profile));
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<std::vector<Profile>> profiles_from_json(std::string_view text) {
  std::vector<Profile> profiles;
  try {
    const Json all = Json::parse(text);
    if (!all.is_array()) return std::nullopt;
    for (const Json& one : all) profiles.push_back(profile_from(one));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return profiles;
}

}  // namespace cacheshim
