// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "cli/commands/commands.h"
#include "cli/doctor/doctor.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "common/exit_codes.h"
#include "common/names.h"

namespace cacheshim::cli {
namespace {

const char* name_of(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarning:
      return "warning";
    case Health::kProblem:
      return "problem";
  }
  return "";
}

void print_finding(const Finding& finding) {
  std::string text = finding.where.empty() ? "" : finding.where + ": ";
  text += finding.what;
  if (!finding.advice.empty()) text += "; " + finding.advice;
  std::replace(text.begin(), text.end(), '\n', ' ');
  print_text("{:<8} {:<17} {}", name_of(finding.health), finding.check, text);
}

void print_report(const DoctorContext& context, const Findings& findings) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings.all()) {
    checks.push_back({{"check", finding.check},
                      {"health", name_of(finding.health)},
                      {"where", finding.where},
                      {"what", finding.what},
                      {"advice", finding.advice}});
  }
  const nlohmann::ordered_json report = {{"mount", context.mount},
                                         {"store", context.store},
                                         {"available", context.is_available},
                                         {"problems", findings.count(Health::kProblem)},
                                         {"warnings", findings.count(Health::kWarning)},
                                         {"checks", std::move(checks)}};
  print_json(report);
}

struct DoctorArguments {
  std::string mount;
  std::string store;
  std::string config;
  bool as_json = false;
};

void check_chosen_mount(const std::string& option, DoctorContext& context, Findings& findings) {
  try {
    context.mount = resolve_path(chosen_mount(option));
  } catch (const Failure& failure) {
    context.mount = find_variable(kMountVariable).value_or("");
    context.is_available = false;
    return findings.problem("mount", context.mount, failure.what(), "");
  }
  check_mount(context, findings);
}

int examine(const DoctorArguments& arguments) {
  Findings findings;
  DoctorContext context;
  context.account = ::geteuid();
  context.config = arguments.config;
  context.store = arguments.store.empty() ? "" : resolve_path(arguments.store);
  const bool wants_mount = arguments.store.empty() || !arguments.mount.empty();
  check_machine(findings);
  if (wants_mount) check_chosen_mount(arguments.mount, context, findings);
  if (!context.store.empty()) check_store(context, findings);
  check_installation(context, findings);
#if CACHESHIM_HAS_REMOTE
  check_remote(context, findings);
#endif
  check_environment(context, findings);
  if (arguments.as_json) {
    print_report(context, findings);
  } else {
    for (const Finding& finding : findings.all()) print_finding(finding);
  }
  if (!context.is_available) return kExitUnavailable;
  return findings.count(Health::kProblem) > 0 ? kExitFailed : kExitSuccess;
}

}  // namespace

void Findings::ok(std::string_view check, std::string_view where, std::string_view what) {
  all_.push_back({Health::kOk, std::string(check), std::string(where), std::string(what), ""});
}

void Findings::warn(std::string_view check, std::string_view where, std::string_view what,
                    std::string_view advice) {
  all_.push_back({Health::kWarning, std::string(check), std::string(where), std::string(what),
                  std::string(advice)});
}

void Findings::problem(std::string_view check, std::string_view where, std::string_view what,
                       std::string_view advice) {
  all_.push_back({Health::kProblem, std::string(check), std::string(where), std::string(what),
                  std::string(advice)});
}

std::size_t Findings::count(Health health) const {
  return static_cast<std::size_t>(
      std::count_if(all_.begin(), all_.end(),
                    [health](const Finding& finding) { return finding.health == health; }));
}

void add_doctor(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Report problems of the machine, mount, store and environment, and their solutions");
  command
      ->add_option("--mount", arguments->mount,
                   "The mount (default: $CACHESHIM_MOUNT or /ci-cache; with --store alone, none)")
      ->type_name("M");
  command->add_option("--store", arguments->store, "The store, mounted or not")->type_name("DIR");
  command->add_option("--config", arguments->config, "Configuration file, as for mount")
      ->type_name("FILE");
  command->add_flag("--json", arguments->as_json, "As JSON");
  command->footer(
      "Prints one line per check: ok, warning or problem; the check; the place; the finding; what to do.\n"
      "Changes nothing, and can run at any time. Checks more as root (docs/doctor.md).\n"
      "Exit codes: 0 no problem; 1 a problem; 69 no such mount, its daemon is dead, or no such store.");
  command->callback([arguments, &exit_code] { exit_code = examine(*arguments); });
}

}  // namespace cacheshim::cli
