// SPDX-License-Identifier: Apache-2.0
//
// `profile learn` runs COMMAND on an empty overlay that covers its cache directory, in a private mount namespace (as
// with `run --store`), and the daemon records the requests (RequestTrace). Rejected alternatives: the preloaded library
// does not see raw system calls or the calls of static programs, and many containers deny ptrace(2). The daemon cannot
// record calls that the kernel answers itself, such as a second stat of a file or a failed open with O_EXCL.
//
// The second run gets a new mount, with the files of the first run. The kernel has cached nothing for a new mount, so
// the daemon also sees the lookups of the second run.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/child_process.h"
#include "cli/commands/commands.h"
#include "cli/configuration/setup.h"
#include "cli/failure.h"
#include "cli/mounting/mount_point.h"
#include "cli/mounting/private_run.h"
#include "cli/paths.h"
#include "cli/run_environment.h"
#include "cli/text.h"
#include "common/exit_codes.h"
#include "common/names.h"
#include "common/root_process.h"
#include "fuse/transport/request_trace.h"
#include "learn/cache_facts.h"
#include "learn/profile_text.h"
#include "learn/request_decoder.h"
#include "store/profiles/profile_check.h"
#include "store/sys/sys.h"

namespace cacheshim::cli {
namespace {

namespace fs = std::filesystem;

// The maximum size, in bytes, of a file that is searched for paths.
constexpr std::size_t kMostText = std::size_t{1} << 20;

struct LearnArguments {
  std::string name;
  std::string variable;
  std::string cache;
  std::vector<std::string> command;
};

// Returns TMPDIR. Returns /tmp if TMPDIR is unset, or if this process is root and another user may
// have set TMPDIR: that user could replace the directory.
std::string temporary_directory() {
  const bool may_be_of_another_user =
      ::geteuid() == 0 && has_environment_of_another_user(ProcessEnvironment());
  return may_be_of_another_user ? "/tmp" : find_variable("TMPDIR").value_or("/tmp");
}

// A new directory in temporary_directory(). The destructor removes it with its contents.
class Workplace {
 public:
  Workplace() {
    path_ = fs::path(temporary_directory()) / "cacheshim-learn-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) {
      const int error = errno;
      throw Failure(kExitFailed, fmt::format("cannot make '{}': {}; the command was not run", path_,
                                             std::generic_category().message(error)));
    }
    for (const char* name : {"lower", "upper", "work", "cache"}) fs::create_directory(path(name));
  }
  ~Workplace() {
    const auto parent = sys::open_path(fs::path(path_).parent_path(), O_RDONLY | O_DIRECTORY);
    if (parent)
      // If the removal fails, the directory remains.
      (void)sys::remove_tree(parent->get(), fs::path(path_).filename());
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::string path(const char* name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

struct RunResult {
  int code;
  std::vector<learn::FileEvent> events;
  bool is_whole;
};

class Learner {
 public:
  explicit Learner(LearnArguments arguments) : arguments_(std::move(arguments)) {
    directory_ = arguments_.cache.empty() ? resolve_path(work_.path("cache"))
                                          : check_directory("cache", arguments_.cache, R_OK | X_OK);
  }

  int learn() {
    RunResult first = run();
    if (first.code == kExitUnavailable && first.events.empty())
      return first.code;  // with_private_mount() has printed the error
    if (first.code != 0) {
      throw Failure(kExitFailed,
                    fmt::format("'{}' failed with exit code {}; no profile was printed",
                                arguments_.command.front(), first.code));
    }
    learn::ProfileHead head = this->head();
    if (!first.is_whole)
      head.notes.emplace_back(
          "The record of calls was full: later calls of the command are missing here.");
    learn::Evidence evidence{
        .first = std::move(first.events), .second = {}, .read = {}, .directory = directory_};
    evidence.read = [this](const std::string& path) { return read(path); };
    RunResult second = run();
    if (second.code == 0)
      evidence.second = std::move(second.events);
    else
      head.notes.push_back(
          fmt::format("The second run failed with exit code {} and is left out.", second.code));
    const learn::CacheFacts facts = learn::find_facts(evidence);
    if (!facts.has_files) {
      throw Failure(kExitFailed, fmt::format("'{}' created no file below '{}'; is that its cache?",
                                             arguments_.command.front(), directory_));
    }
    print(learn::profile_text(head, facts));
    return kExitSuccess;
  }

 private:
  RunResult run() {
    const auto trace = RequestTrace::make();
    if (!trace) throw Failure(kExitFailed, "no memory for a trace; the command was not run");
    DaemonOptions options;
    options.overlay = {
        .lowers = {work_.path("lower")}, .upper = work_.path("upper"), .work = work_.path("work")};
    options.mount_point = directory_;
    options.io_uring = false;  // only requests through /dev/fuse are recorded
    options.owners.keep = false;
    options.trace = trace.get();
    const int code = with_private_mount(options, [this] { return run_command(); });
    return {code, learn::decode_requests(trace->records()), !trace->is_full()};
  }

  int run_command() const {
    (void)::setenv(std::string(kDisableVariable).c_str(), "1",
                   1);  // otherwise the preloaded library would redirect the cache to the system's mount
    if (!arguments_.variable.empty())
      (void)::setenv(arguments_.variable.c_str(), directory_.c_str(), 1);
    const auto body = [this] {
      (void)::dup2(STDERR_FILENO, STDOUT_FILENO);  // only the profile goes to the caller's stdout
      return exec_command(arguments_.command);
    };
    return run_child(body, SIGKILL, OrphanPolicy::kKillChild);
  }

  learn::ProfileHead head() const {
    learn::ProfileHead head{.name = arguments_.name,
                            .variable = arguments_.variable,
                            .default_path = {},
                            .command = {},
                            .notes = {}};
    if (head.name.empty()) head.name = fs::path(arguments_.command.front()).filename();
    for (const std::string& word : arguments_.command)
      head.command += (head.command.empty() ? "" : " ") + word;
    if (arguments_.cache.empty()) return head;
    const std::string home = find_variable("HOME").value_or("");
    head.default_path = directory_;
    if (home.size() > 1 && directory_.starts_with(home + '/'))
      head.default_path = '~' + directory_.substr(home.size());
    return head;
  }

  std::optional<learn::Evidence::Content> read(const std::string& path) const {
    const auto upper = sys::open_path(work_.path("upper"), O_RDONLY | O_DIRECTORY);
    if (!upper) return std::nullopt;
    const auto file = sys::open_beneath(upper->get(), path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const auto st = file ? sys::stat_fd(file->get()) : file.error();
    if (!st || !S_ISREG(st->st_mode)) return std::nullopt;
    learn::Evidence::Content content{.mode = st->st_mode & 0777U, .text = ""};
    if (!path.ends_with(".json") || static_cast<std::size_t>(st->st_size) > kMostText)
      return content;
    if (auto text = sys::read_file(upper->get(), path)) content.text = *std::move(text);
    return content;
  }

  void print(const std::string& text) const {
    const std::string copy = work_.path("learned.toml");
    std::ofstream(copy) << text;
    for (const std::string& finding : check_profile(copy))
      print_line("to be corrected in the profile, line " + finding.substr(copy.size() + 1));
    print_lines(text);
  }

  const LearnArguments arguments_;
  const Workplace work_;
  std::string directory_;
};

void check_arguments(const LearnArguments& arguments) {
  if (arguments.command.empty()) {
    throw Failure(kExitUsage, "profile learn needs a COMMAND; see cacheshim profile learn --help");
  }
  if (arguments.variable.empty() && arguments.cache.empty()) {
    throw Failure(
        kExitUsage,
        "which cache? --variable names the variable that moves it, --cache its directory");
  }
  const std::string& variable = arguments.variable;
  if (variable.find('=') != variable.npos) {
    throw Failure(kExitUsage, fmt::format("'{}' is not the name of a variable", variable));
  }
  if (!arguments.name.empty()) check_job_id(arguments.name);
}

}  // namespace

void add_learn(CLI::App& profile, const std::vector<std::string>& command, int& exit_code) {
  auto arguments = std::make_shared<LearnArguments>();
  CLI::App* learn =
      profile.add_subcommand("learn", "Draft a profile from what a command does in its cache");
  learn->add_option("--name", arguments->name, "The profile's name (default: COMMAND's)")
      ->type_name("NAME");
  learn
      ->add_option("--variable", arguments->variable,
                   "Variable that moves the cache; it is set for COMMAND")
      ->type_name("VAR");
  learn
      ->add_option("--cache", arguments->cache,
                   "COMMAND's cache directory (default: a temporary directory)")
      ->type_name("DIR");
  learn->formatter(make_formatter_with_command());
  learn->footer(
      "Runs COMMAND with an empty cache, and then again with the files that it has left there. COMMAND sees only these\n"
      "files at DIR; the real contents are neither read nor changed. Needs /dev/fuse, but neither root nor a mount.\n"
      "Prints the profile; COMMAND's own output goes to stderr. The profile is a guess, with the observations as\n"
      "comments; docs/profiles.md explains how to check it.\n"
      "Exit codes: 0 a profile was printed; 1 COMMAND failed or created no file there; 69 no private mount is possible.");
  learn->callback([arguments, &command, &exit_code] {
    arguments->command = command;
    check_arguments(*arguments);
    exit_code = Learner(*arguments).learn();
  });
}

}  // namespace cacheshim::cli
