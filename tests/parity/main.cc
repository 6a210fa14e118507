// SPDX-License-Identifier: Apache-2.0
// Compares a mount's view with a plain directory: the same calls on both must return the same
// values, errnos, bytes, stat fields and listings. The two must be on the same kind of file system.
//
// `prepare` runs first, as the store's owner and before the mount, and creates the same files in
// the native directory and in the base. Then `run`, as the job's user, works on the native
// directory and the view.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

#include "tests/parity/known_differences.h"
#include "tests/parity/runner.h"

namespace {

constexpr char kUsage[] =
    "usage: parity prepare[-model|-data] --native DIR --base DIR [--owner UID] [options]\n"
    "       parity run[-model|-data] --native DIR --view DIR [--verbose] [options]\n"
    "       parity differences   what views are known to do in another way than a directory\n"
    "options: --filter PATTERN   cases by name, \"@(a*|b*)\" for several\n"
    "         --keeps-owners     the view has the base's owners; the same in both steps\n"
    "         --several-users    cases that act as several users, too; the same in both steps\n"
    "         --plain            the view is a plain directory too: nothing may differ\n"
    "         --seed N --rounds N --actions N   for the models; the same in both steps\n"
    "         --script FILE      what a model printed when it failed; in both steps\n"
    "A view's path may hold {job}: what CACHESHIM_JOB says then stands there.\n"
    "exit status: 0 all equal, 1 something differs, 2 usage or the directories cannot be used, 3 "
    "hangs\n";

constexpr unsigned kAttemptTimeoutSeconds = 60;

using cacheshim::parity::Options;

const std::map<std::string, bool Options::*> kFlags = {
    {"--verbose", &Options::verbose},
    {"--plain", &Options::is_plain},
    {"--keeps-owners", &Options::keeps_owners},
    {"--several-users", &Options::several_users}};

bool parse(int argc, char** argv, Options& options) {
  const auto number = [](const char* text) { return static_cast<unsigned>(std::stoul(text)); };
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (const auto flag = kFlags.find(name); flag != kFlags.end()) {
      options.*flag->second = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (name == "--native")
      options.native = value;
    else if (name == "--view")
      options.view_as_given = value;
    else if (name == "--base")
      options.base = value;
    else if (name == "--filter")
      options.filter = value;
    else if (name == "--owner")
      options.owner = number(value);
    else if (name == "--seed")
      options.seed = number(value);
    else if (name == "--rounds")
      options.rounds = number(value);
    else if (name == "--actions")
      options.actions = number(value);
    else if (name == "--script")
      options.script = value;
    else if (name == "--attempt")
      options.attempt = number(value);
    else
      return false;
  }
  return !options.native.empty() && (!options.view_as_given.empty() || !options.base.empty());
}

std::string with_job(std::string view) {
  constexpr std::string_view kPlace = "{job}";
  const char* job = std::getenv("CACHESHIM_JOB");
  const std::size_t at = view.find(kPlace);
  if (at != std::string::npos && job != nullptr) view.replace(at, kPlace.size(), job);
  return view;
}

int print_differences() {
  for (const auto& known : cacheshim::parity::known_differences()) {
    std::printf("%s\t%s\n", known.pattern, known.reason);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace cacheshim::parity;
  static const std::map<std::string, int (*)(const Options&)> kCommands = {
      {"prepare", prepare_cases},       {"run", run_cases},
      {"prepare-model", prepare_model}, {"run-model", run_model},
      {"prepare-data", prepare_data},   {"run-data", run_data}};
  if (argc == 2 && std::string(argv[1]) == "differences") return print_differences();
  Options options;
  const auto command = kCommands.find(argc > 1 ? argv[1] : "");
  if (command == kCommands.end() || !parse(argc, argv, options)) {
    (void)std::fputs(kUsage, stderr);
    return 2;
  }
  options.view = with_job(options.view_as_given);
  (void)::umask(022);
  if (options.attempt != 0) (void)::alarm(kAttemptTimeoutSeconds);
  return command->second(options) == 0 ? 0 : 1;
} catch (const std::exception& error) {
  (void)std::fprintf(stderr, "parity: %s\n", error.what());
  return 2;
}
