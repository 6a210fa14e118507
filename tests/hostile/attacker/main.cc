// SPDX-License-Identifier: Apache-2.0
// A user who makes random system calls on a mount:
//
//   attacker MOUNT SEED SECONDS JOB…       starts one process after the other, each as one of the jobs ("-": no job)
//   attacker --once MOUNT SEED [CALLS]     makes the calls of one of these processes; the job is in the environment
//
// If a call takes longer than kLongestCallMs, the program prints the seed of the process and exits with status 1. The
// calls of a seed are always the same, but their results may differ, because other processes change the same tree.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>

#include "tests/hostile/attacker/life.h"

namespace attacker {
namespace {

constexpr std::int64_t kLongestCallMs = 30'000;
constexpr int kPollMs = 250;
constexpr int kCalls = 400;
constexpr int kProgressFd = 3;
constexpr std::uint64_t kSeedStep = 1'000'003;  // between the first seeds of two attackers

Progress* map_progress() {
  void* const page =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, kProgressFd, 0);
  if (page == MAP_FAILED) std::abort();
  return static_cast<Progress*>(page);
}

// Creates the shared memory in which each process writes its progress, as descriptor kProgressFd.
Progress* make_progress() {
  const int file = ::memfd_create("progress", 0);
  if (file != kProgressFd) {
    if (::dup2(file, kProgressFd) < 0) std::abort();
    (void)::close(file);
  }
  if (::ftruncate(kProgressFd, sizeof(Progress)) != 0) std::abort();
  return new (map_progress()) Progress;
}

pid_t start(const char* mount, std::uint64_t seed, const std::string& job) {
  const std::string text = std::to_string(seed);
  const std::string variable = job == "-" ? "NOTHING=1" : "CACHESHIM_JOB=" + job;
  const pid_t child = ::fork();
  if (child != 0) return child;
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const char* const arguments[] = {"attacker", "--once", mount, text.c_str(), nullptr};
  const char* const environment[] = {variable.c_str(), nullptr};
  (void)::execve("/proc/self/exe", const_cast<char* const*>(arguments),
                 const_cast<char* const*>(environment));
  ::_exit(127);
}

std::string proc_file(pid_t pid, const char* name) {
  std::ifstream file("/proc/" + std::to_string(pid) + '/' + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

void report(pid_t pid, std::uint64_t seed, const std::string& job, const Progress& progress) {
  std::string call;
  for (const auto& byte : progress.name) call += byte;
  std::printf(
      "job %s, seed %llu, process %d: '%s' takes longer than %lld s; syscall %s, wchan %s\n",
      job.c_str(), static_cast<unsigned long long>(seed), pid, call.c_str(),
      static_cast<long long>(kLongestCallMs / 1000), proc_file(pid, "syscall").c_str(),
      proc_file(pid, "wchan").c_str());
}

// Waits until the process exits. Kills one process in eight, at a time that its seed determines. Returns false if a
// call of the process hangs.
bool watch(pid_t pid, std::uint64_t seed, const std::string& job, Progress& progress) {
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  const bool is_killed = seed % 8 == 0;
  pollfd item{handle, POLLIN, 0};
  int wait_ms = is_killed ? static_cast<int>(seed / 8 % 300) : kPollMs;
  bool ends = true;
  while (::poll(&item, 1, wait_ms) <= 0) {
    if (is_killed) (void)::kill(pid, SIGKILL);
    wait_ms = kPollMs;
    if (now_ms() - progress.since_ms <= kLongestCallMs) continue;
    report(pid, seed, job, progress);
    ends = false;
    break;
  }
  (void)::close(handle);
  if (ends) (void)::waitpid(pid, nullptr, 0);
  return ends;
}

int attack(int argc, char** argv) {
  const std::uint64_t first = std::strtoull(argv[2], nullptr, 10) * kSeedStep;
  const std::int64_t end_ms = now_ms() + 1000 * std::strtoll(argv[3], nullptr, 10);
  Progress& progress = *make_progress();
  std::uint64_t seed = first;
  for (; now_ms() < end_ms; ++seed) {
    const std::string job = argv[4 + static_cast<int>(seed % static_cast<unsigned>(argc - 4))];
    progress.since_ms = now_ms();
    const pid_t pid = start(argv[1], seed, job);
    if (pid < 0 || !watch(pid, seed, job, progress)) return 1;
  }
  std::printf("%llu processes\n", static_cast<unsigned long long>(seed - first));
  return 0;
}

}  // namespace
}  // namespace attacker

int main(int argc, char** argv) {
  using namespace attacker;
  if (argc >= 4 && std::string(argv[1]) == "--once") {
    Progress own;
    Progress& progress = ::fcntl(kProgressFd, F_GETFD) < 0 ? own : *map_progress();
    live(argv[2], std::strtoull(argv[3], nullptr, 10), argc > 4 ? std::atoi(argv[4]) : kCalls,
         progress);
  }
  if (argc < 5) return 2;
  return attack(argc, argv);
}
