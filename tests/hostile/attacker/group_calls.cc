// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/hostile/attacker/calls.h"
#include "tests/hostile/attacker/life.h"

namespace attacker {
namespace {

constexpr std::size_t kMostReads = 40;  // the most read calls for one answer
constexpr int kCallsOfCopy = 8;

void write_text(const std::string& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
  (void)!::write(file, text.data(), text.size());
  (void)::close(file);
}

// Builds an entry as Triton does: renames each file into the entry, the group file last.
void build_entry(World& world) {
  const std::string entry = world.mount() + "/triton/" + world.entry_name();
  const std::string staging = entry + "/tmp.pid_" + std::to_string(world.random().below(4)) + "_a";
  (void)::mkdir(entry.c_str(), 0755);
  struct stat status;
  (void)::stat((entry + "/__grp__k.json").c_str(),
               &status);  // takes the lease, or waits for the builder
  (void)::mkdir(staging.c_str(), 0755);
  for (const char* name : {"k.cubin", "k.json", "__grp__k.json"}) {
    if (world.random().one_in(12)) continue;
    const std::string text = "{\"child_paths\": {\"k.json\": \"" + entry +
                             "/k.json\", \"k.cubin\": \"" + entry + "/k.cubin\"}}" +
                             std::string(world.random().below(3), ' ');
    write_text(staging + '/' + name, text);
    (void)::rename((staging + '/' + name).c_str(), (entry + '/' + name).c_str());
  }
  (void)::rmdir(staging.c_str());
}

std::string request(World& world) {
  Random& random = world.random();
  const auto job = random.pick<std::string>(
      {"team", "one", "two", "uid-20004", "uid-0", "..", "x y", "uid-20001"});
  const auto operation = random.pick<std::string>(
      {"job-list", "job-show", "job-layer", "job-start", "job-end", "job-publish", "job-discard",
       "explain", "gc", "verify", "waiting", "close", "reopen", "none"});
  std::string path = "triton/" + world.entry_name() + '/';
  path += random.pick({"k.json", "__grp__k.json", "a", "../..", ""});
  std::string text = R"({"op": ")" + operation + R"(", "job": ")" + job + R"(", "path": ")" + path +
                     R"(", "outcome": ")" + random.pick({"success", "failure", "x"}) +
                     R"(", "cycle": ")" + random.pick({"0", "1", ""}) + R"(", "shared_uids": )" +
                     random.pick({"true", "false"}) + R"(, "dry_run": )" +
                     random.pick({"true", "false", "7"}) + "}";
  if (random.one_in(10)) text[random.below(text.size())] = static_cast<char>(random.number());
  if (random.one_in(10)) text.resize(random.below(text.size()));
  return text;
}

void ask_daemon(World& world) {
  const int control = ::open((world.mount() + "/.cacheshim/control").c_str(), O_RDWR | O_CLOEXEC);
  const std::string text = request(world);
  (void)!::write(control, text.data(), text.size());
  std::string answer(4096, '\0');
  const std::size_t reads =
      world.random().one_in(4) ? 0 : kMostReads;  // sometimes does not read the answer
  for (std::size_t count = 0; count<reads&& ::read(control, answer.data(), answer.size())> 0;
       ++count) {
  }
  if (world.random().one_in(20)) {
    world.keep(control);
  } else {
    (void)::close(control);
  }
}

// Forks a child that makes some calls and exits. The child shares this process's open file descriptions, and with them
// its flock and OFD locks.
void fork_process(World& world);

void run_program(World& world) {
  const std::string path = world.path();
  const pid_t child = ::fork();
  if (child == 0) {
    char* arguments[] = {nullptr};
    (void)::execve(path.c_str(), arguments, arguments);
    ::_exit(0);
  }
  if (child > 0) (void)::waitpid(child, nullptr, 0);
}

void write_map(const char* path, const std::string& text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  (void)!::write(file, text.data(), text.size());
  (void)::close(file);
}

// In one of ten calls, makes this process root in new user and mount namespaces.
void enter_user_namespace(World& world) {
  if (!world.random().one_in(10)) return;
  const std::string user = std::to_string(::getuid());
  const std::string group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return;
  write_map("/proc/self/setgroups", "deny");
  write_map("/proc/self/uid_map", "0 " + user + " 1");
  write_map("/proc/self/gid_map", "0 " + group + " 1");
}

constexpr Call kCalls[] = {
    {"build of an entry", build_entry},
    {"build of an entry", build_entry},
    {"build of an entry", build_entry},
    {"request", ask_daemon},
    {"request", ask_daemon},
    {"fork", fork_process},
    {"execve", run_program},
    {"unshare", enter_user_namespace},
};

void fork_process(World& world) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    interrupt_regularly(world.random());
    for (int count = 0; count < kCallsOfCopy; ++count) {
      const auto calls = world.random().one_in(2) ? name_calls() : file_calls();
      calls[world.random().below(calls.size())].run(world);
    }
    ::_exit(0);
  }
  if (child > 0 && world.random().one_in(2)) (void)::waitpid(child, nullptr, 0);
}

}  // namespace

std::span<const Call> group_calls() { return kCalls; }

}  // namespace attacker
