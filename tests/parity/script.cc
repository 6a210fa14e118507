// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/script.h"

#include <err.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/parity/shrink.h"

namespace cacheshim::parity {
namespace {

constexpr unsigned kMostAttempts = 400;
constexpr char kHeader[] = "seed %u round %u";

// Returns this process's environment, with the attempt's own job in CACHESHIM_JOB.
std::vector<std::string> environment_of_attempt(unsigned number) {
  constexpr std::string_view kJob = "CACHESHIM_JOB=";
  std::vector<std::string> all = {std::string(kJob) + "attempt" + std::to_string(number)};
  for (char** one = environ; *one != nullptr; ++one) {
    if (!std::string_view(*one).starts_with(kJob)) all.emplace_back(*one);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

class Attempts {
 public:
  Attempts(const Options& options, std::string run, const Script& script)
      : options_(options),
        run_(std::move(run)),
        script_(script),
        path_(options.native + "/script-" + std::to_string(::getpid())) {}

  // Runs the steps in a child. Returns true if the child reports a mismatch, crashes, or hangs (main()
  // of the child sets an alarm, which then kills the child). Returns false if the child exits with 2,
  // for example because it cannot use its directories.
  bool fails(const std::vector<std::string>& steps, bool silent) {
    script_.steps = steps;
    write_script(script_, path_);
    const int status = wait_for(start(silent));
    (void)::unlink(path_.c_str());
    return !WIFEXITED(status) || WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 3;
  }

 private:
  pid_t start(bool silent) {
    const std::string number = std::to_string(++number_);
    std::vector<std::string> words = {
        "parity",   run_,  "--native",  options_.native, "--view", options_.view_as_given,
        "--script", path_, "--attempt", number};
    if (options_.is_plain) words.emplace_back("--plain");
    std::vector<std::string> variables = environment_of_attempt(number_);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    if (silent) {
      for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
        ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
      }
    }
    pid_t pid = 0;
    const int code = ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr,
                                   pointers(words).data(), pointers(variables).data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (code != 0) errx(2, "cannot start an attempt: %s", ::strerrorname_np(code));
    return pid;
  }

  static int wait_for(pid_t pid) {
    int status = 0;
    if (::waitpid(pid, &status, 0) != pid) err(2, "waitpid");
    return status;
  }

  const Options& options_;
  std::string run_;
  Script script_;
  std::string path_;
  unsigned number_ = 0;
};

std::string round_name(const Options& options, const char* kind, unsigned round) {
  return std::string(kind) + "-" + std::to_string(options.seed) + "-" + std::to_string(round);
}

std::string attempt_name(const Options& options) {
  return options.attempt == 0 ? "" : "-attempt" + std::to_string(options.attempt);
}

}  // namespace

Script read_script(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  Script script;
  if (!std::getline(file, line) ||
      std::sscanf(line.c_str(), kHeader, &script.seed, &script.round) != 2) {
    errx(2, "%s does not begin with 'seed N round N'", path.c_str());
  }
  while (std::getline(file, line)) script.steps.push_back(line);
  return script;
}

void write_script(const Script& script, const std::string& path) {
  std::ofstream file(path);
  file << "seed " << script.seed << " round " << script.round << '\n';
  for (const std::string& step : script.steps) file << step << '\n';
  if (!file.flush()) errx(2, "cannot write %s", path.c_str());
}

Options for_script(const Options& options) {
  Options own = options;
  if (options.script.empty()) return own;
  const Script script = read_script(options.script);
  own.seed = script.seed;
  own.first_round = script.round;
  own.rounds = 1;
  own.actions = static_cast<unsigned>(script.steps.size());
  return own;
}

std::string native_directory(const Options& options, const char* kind, unsigned round) {
  return options.native + "/" + round_name(options, kind, round) + attempt_name(options);
}

std::string view_directory(const Options& options, const char* kind, unsigned round) {
  return options.view + "/" + round_name(options, kind, round) +
         (options.is_plain ? attempt_name(options) : "");
}

void shrink_and_print(const Options& options, const std::string& run, Script script) {
  // Shrinks only a random round: neither an attempt nor a given script.
  if (options.attempt != 0 || !options.script.empty()) return;
  Attempts attempts(options, run, script);
  const auto fails = [&](const std::vector<std::string>& steps) {
    return attempts.fails(steps, true);
  };
  if (fails(script.steps)) {
    script.steps = shrink<std::string>(script.steps, fails, kMostAttempts);
  } else {
    std::printf("the same steps do not fail again; all of them:\n");
  }
  std::printf("--- give these lines to prepare and run by --script FILE\nseed %u round %u\n",
              script.seed, script.round);
  for (const std::string& step : script.steps) std::printf("%s\n", step.c_str());
  std::printf("---\n");
  (void)std::fflush(stdout);
  (void)attempts.fails(script.steps, false);
}

}  // namespace cacheshim::parity
