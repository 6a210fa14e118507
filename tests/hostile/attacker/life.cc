// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/attacker/life.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>

#include "tests/hostile/attacker/calls.h"

namespace attacker {
namespace {

constexpr rlim_t kMostFileBytes = rlim_t{2} << 20;  // of each file, so that the tree stays small
constexpr rlim_t kMostFiles = 128;

void ignore(int) {}

void limit(__rlimit_resource resource, rlim_t most) {
  const rlimit limit{most, most};
  (void)::setrlimit(resource, &limit);
}

void begin(Progress& progress, const char* name) {
  for (std::size_t at = 0; at + 1 < progress.name.size(); ++at) {
    progress.name[at] = *name;
    if (*name != '\0') ++name;
  }
  progress.since_ms = now_ms();
}

const Call& next_call(Random& random) {
  const auto calls =
      random.pick({name_calls(), name_calls(), file_calls(), file_calls(), group_calls()});
  return calls[random.below(calls.size())];
}

}  // namespace

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

void interrupt_regularly(Random& random) {
  struct sigaction action {};
  action.sa_handler = ignore;  // without SA_RESTART, so the interrupted call fails with EINTR
  (void)::sigaction(SIGALRM, &action, nullptr);
  const auto interval = static_cast<suseconds_t>(random.pick({3'000, 30'000, 300'000}));
  const itimerval timer{{0, interval}, {0, interval}};
  (void)::setitimer(ITIMER_REAL, &timer, nullptr);
}

void live(const std::string& mount, std::uint64_t seed, int calls, Progress& progress) {
  (void)::signal(SIGPIPE, SIG_IGN);
  (void)::signal(SIGXFSZ, SIG_IGN);
  (void)::signal(SIGIO, SIG_IGN);
  (void)::umask(022);
  limit(RLIMIT_FSIZE, kMostFileBytes);
  limit(RLIMIT_NOFILE, kMostFiles);
  limit(RLIMIT_CORE, 0);
  World world(mount, seed);
  interrupt_regularly(world.random());
  (void)!::chdir(mount.c_str());
  for (int count = 0; count < calls; ++count) {
    const Call& call = next_call(world.random());
    begin(progress, call.name);
    call.run(world);
  }
  begin(progress, "exit");
  ::_exit(0);
}

}  // namespace attacker
