// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/configuration/setup.h"
#include "cli/control_client.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "common/exit_codes.h"
#include "store/profiles/profile_check.h"

namespace cacheshim::cli {
namespace {

std::string joined(const std::vector<std::string>& texts, const char* none) {
  return texts.empty() ? none : fmt::format("{}", fmt::join(texts, " "));
}

std::string or_none(const std::string& text) { return text.empty() ? "-" : text; }

// Returns the profiles that the mount uses; if `mount` is empty, the profiles that a new mount
// would load. Prints the errors of invalid profiles.
std::vector<Profile> load_for_reading(const std::string& mount) {
  return mount.empty() ? load_all_profiles(find_installation().profiles)
                       : ControlClient(mount).profiles();
}

void list_profiles(const std::string& mount) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "EVIDENCE", "VARIABLE", "DEFAULT PATHS", "FILE"}};
  for (const Profile& profile : load_for_reading(mount)) {
    rows.push_back({profile.name, std::string(to_string(profile.evidence)),
                    or_none(profile.variable), joined(profile.default_paths, "-"), profile.origin});
  }
  print_table(rows);
}

std::string completeness_text(const EntryRule& rule) {
  std::vector<std::string> ways;
  const auto add = [&](const char* what, const std::vector<std::string>& patterns) {
    if (!patterns.empty()) ways.push_back(fmt::format("{} {}", what, joined(patterns, "")));
  };
  add("with", rule.complete);
  add("with alone", rule.complete_single);
  add("at the job's end with", rule.complete_at_end);
  if (rule.renamed && rule.needs_no_name()) {
    ways.push_back(rule.is_directory() || rule.files.size() == 1 ? "when renamed there"
                                                                 : "when all are renamed there");
  } else if (rule.renamed) {
    ways.push_back("not before a rename or the end of its baton");
  }
  if (!rule.built_under.empty()) {
    ways.insert(ways.begin(), fmt::format("when {} is unlocked", rule.built_under));
  }
  if (!rule.says_when_complete()) ways.push_back("if the job succeeds");
  return fmt::format("{}", fmt::join(ways, "; "));
}

std::string entry_text(const EntryRule& rule) {
  if (rule.is_directory()) return fmt::format("directory {}", rule.path.text());
  if (rule.files == std::vector<std::string>{""}) return fmt::format("file {}", rule.path.text());
  std::vector<std::string> endings;
  for (const std::string& ending : rule.files) endings.push_back("'" + ending + "'");
  return fmt::format("files {}, ending in {}", rule.path.text(), joined(endings, ""));
}

void show_profile(const std::string& name, const std::string& mount) {
  const std::vector<Profile> profiles = load_for_reading(mount);
  const auto found = std::find_if(profiles.begin(), profiles.end(),
                                  [&](const Profile& profile) { return profile.name == name; });
  if (found == profiles.end()) {
    throw Failure(kExitFailed,
                  fmt::format("no profile '{0}'; 'cacheshim profile list{1}' names them", name,
                              mount.empty() ? "" : " --mount " + mount));
  }
  const Profile& profile = *found;
  const char* early = profile.may_publish_early() ? "" : ": published only if the job succeeds";
  const bool is_left = !profile.variable.empty() && !profile.sets_variable();
  const char* not_set = is_left ? ": users set it, the preloaded library does not" : "";
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"name", profile.name},
      {"file", profile.origin},
      {"evidence", fmt::format("{}{}", to_string(profile.evidence), early)},
      {"variable", or_none(profile.variable) + not_set},
      {"unless", joined(profile.unless, "-")},
      {"default paths", joined(profile.default_paths, "-")}};
  for (const EntryRule& rule : profile.entries) {
    pairs.emplace_back("entry", entry_text(rule));
    pairs.emplace_back("  complete", completeness_text(rule));
    if (rule.renewed) pairs.emplace_back("  renewed", "its programs replace its files");
    if (!rule.paths_in.empty()) pairs.emplace_back("  paths in", joined(rule.paths_in, ""));
  }
  if (profile.mkstemp) pairs.emplace_back("modes", "as open to others as the entry's directory");
  for (const auto& [name_class, pattern] : profile.classes) {
    pairs.emplace_back(to_string(name_class), pattern.text());
  }
  print_pairs(pairs);
}

// Returns the installed profiles, except those that a given file replaces.
std::vector<Profile> installed_beside(const std::vector<std::string>& files) {
  auto installed = load_profiles(profile_directories(find_installation().profiles)).profiles;
  for (const std::string& file : files) {
    const auto given = load_profile(file);
    const auto* profile = std::get_if<Profile>(&given);
    if (profile == nullptr) continue;
    std::erase_if(installed, [&](const Profile& other) { return other.name == profile->name; });
  }
  return installed;
}

int check_profiles(const std::vector<std::string>& files) {
  int exit_code = kExitSuccess;
  std::vector<Profile> others = installed_beside(files);
  for (const std::string& file : files) {
    std::vector<std::string> findings = check_profile(file);
    const auto loaded = load_profile(file);
    if (const auto* profile = std::get_if<Profile>(&loaded)) {
      const auto shared = check_against(*profile, others);
      findings.insert(findings.end(), shared.begin(), shared.end());
      if (findings.empty()) print_text("{}: '{}' is good", file, profile->name);
      others.push_back(*profile);
    }
    for (const std::string& finding : findings) print_line(finding);
    if (!findings.empty()) exit_code = kExitFailed;
  }
  return exit_code;
}

}  // namespace

void add_profile(CLI::App& app, const std::vector<std::string>& command, int& exit_code) {
  CLI::App* profile = app.add_subcommand("profile", "Show the profiles of cache families");
  profile->require_subcommand(1);
  profile->footer(
      "Profiles are TOML files: shipped ones, and your own in /etc/cacheshim/profiles.d (without root:\n"
      "~/.config/cacheshim/profiles.d). Your own replace shipped ones of the same name. If a profile is\n"
      "invalid, a mount reports the file, the line and the reason, and uses the others. docs/profiles.md\n"
      "explains how to write a profile. A mount reads the profiles when it starts, including those in\n"
      "profiles.d beside the file that --config names. --mount shows the profiles that a mount uses.");
  CLI::App* list = profile->add_subcommand("list", "List all profiles");
  auto mount = std::make_shared<std::string>();
  list->add_option("--mount", *mount, "List the profiles that this mount uses")->type_name("M");
  list->callback([mount, &exit_code] {
    list_profiles(*mount);
    exit_code = kExitSuccess;
  });
  auto name = std::make_shared<std::string>();
  CLI::App* show = profile->add_subcommand("show", "Show a description of one profile");
  show->add_option("NAME", *name, "A name that 'profile list' prints")->required();
  show->add_option("--mount", *mount, "Show the profile as this mount uses it")->type_name("M");
  show->callback([name, mount, &exit_code] {
    show_profile(*name, *mount);
    exit_code = kExitSuccess;
  });
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* check = profile->add_subcommand("check", "Check profiles before a mount reads them");
  check->add_option("FILE", *files, "Profiles")->required();
  check->footer("Exit codes: 0 all profiles are valid; 1 a profile is invalid.");
  check->callback([files, &exit_code] { exit_code = check_profiles(*files); });
  add_learn(*profile, command, exit_code);
}

}  // namespace cacheshim::cli
