// SPDX-License-Identifier: Apache-2.0
#include "bench/race/race.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace cacheshim::race {
namespace {

[[noreturn]] void fail(int error, const char* what) {
  throw std::system_error(error, std::generic_category(), what);
}

double read_clock(clockid_t clock) {
  timespec now{};
  if (::clock_gettime(clock, &now) != 0) fail(errno, "clock_gettime");
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double own_cpu() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);  // cannot fail with these arguments
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

// Returns the CPU time of all threads of the processes. A process's clock counts the same time as
// /proc/PID/stat, but in nanoseconds instead of ticks.
double cpu_of(const std::vector<pid_t>& processes) {
  double sum = 0;
  for (const pid_t process : processes) {
    clockid_t clock{};
    if (const int error = ::clock_getcpuclockid(process, &clock)) fail(error, "a daemon's clock");
    sum += read_clock(clock);
  }
  return sum;
}

// Returns the CPU time used on the whole machine: user, nice and system time of /proc/stat.
double machine_cpu() {
  std::ifstream file("/proc/stat");
  std::string label;
  double user = 0;
  double nice = 0;
  double system = 0;
  if (!(file >> label >> user >> nice >> system))
    throw std::runtime_error("cannot read /proc/stat");
  return (user + nice + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// A runner's results, which its parent reads.
struct Report {
  uint64_t operations;
  double begin;
  double end;
  double cpu;
};

// Memory shared with the runners: the barrier before the start, and their reports.
class Board {
 public:
  explicit Board(unsigned runners) {
    if (runners > kMaxRunners) throw std::invalid_argument("too many processes");
    void* memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail(errno, "mmap");
    shared_ = new (memory) Shared;
    pthread_barrierattr_t attributes;
    (void)::pthread_barrierattr_init(&attributes);  // these two cannot fail on Linux
    (void)::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    const int error = ::pthread_barrier_init(&shared_->start, &attributes, runners + 1);
    if (error != 0) fail(error, "pthread_barrier_init");
  }
  ~Board() { (void)::munmap(shared_, sizeof(Shared)); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Returns when all runners and their parent have called it.
  void wait_for_start() { (void)::pthread_barrier_wait(&shared_->start); }
  Report& report(unsigned runner) { return shared_->reports.at(runner); }

 private:
  static constexpr unsigned kMaxRunners = 256;
  struct Shared {
    pthread_barrier_t start;
    std::array<Report, kMaxRunners> reports;
  };

  Shared* shared_;
};

// Checks the time with the coarse clock, because reading it takes only a twentieth of the time of a
// stat. A row may therefore end a few milliseconds late.
Report run_steps(const Step& step, double seconds) {
  const double cpu_before = own_cpu();
  const double begin = read_clock(CLOCK_MONOTONIC);
  const double deadline = read_clock(CLOCK_MONOTONIC_COARSE) + seconds;
  uint64_t operations = 0;
  while (step()) {
    ++operations;
    if (seconds > 0 && read_clock(CLOCK_MONOTONIC_COARSE) >= deadline) break;
  }
  const double end = read_clock(CLOCK_MONOTONIC);
  return {.operations = operations, .begin = begin, .end = end, .cpu = own_cpu() - cpu_before};
}

void say(const std::exception& error) {
  (void)::fprintf(stderr, "race_worker: %s\n", error.what());
}

// Returns an empty step on failure, because the other runners are still waiting for this one at the start.
Step try_make_step(const Row& row, const Runner& runner) {
  try {
    return row.make_step(runner);
  } catch (const std::exception& error) {
    say(error);
    return nullptr;
  }
}

[[noreturn]] void be_runner(const Row& row, const Runner& runner, double seconds, Board& board) {
  const Step step = try_make_step(row, runner);
  board.wait_for_start();
  if (!step) ::_exit(1);
  try {
    board.report(runner.index) = run_steps(step, row.to_the_end ? 0 : seconds);
  } catch (const std::exception& error) {
    say(error);
    ::_exit(1);
  }
  ::_exit(0);
}

// Waits for the runners to exit. Returns true if all of them succeeded.
bool wait_for(const std::vector<pid_t>& runners) {
  bool fine = true;
  for (const pid_t runner : runners) {
    int status = 0;
    while (::waitpid(runner, &status, 0) < 0 && errno == EINTR) continue;
    fine = fine && status == 0;
  }
  return fine;
}

Outcome sum_up(Board& board, unsigned runners) {
  Outcome outcome;
  double begin = board.report(0).begin;
  double end = board.report(0).end;
  for (unsigned runner = 0; runner < runners; ++runner) {
    const Report& report = board.report(runner);
    outcome.operations += report.operations;
    outcome.own_cpu += report.cpu;
    begin = std::min(begin, report.begin);
    end = std::max(end, report.end);
  }
  outcome.wall = end - begin;
  return outcome;
}

}  // namespace

Outcome run_race(const Row& row, const Tree& tree, const Terms& terms) {
  row.warm_up(tree);
  Board board(terms.processes);
  std::vector<pid_t> runners;
  for (unsigned index = 0; index < terms.processes; ++index) {
    const Runner runner{.tree = tree, .index = index, .count = terms.processes, .seed = terms.seed};
    const pid_t child = ::fork();
    if (child < 0) fail(errno, "fork");
    if (child == 0) be_runner(row, runner, terms.seconds, board);
    runners.push_back(child);
  }
  const double daemons_before = cpu_of(terms.daemons);
  const double machine_before = machine_cpu();
  board.wait_for_start();
  if (!wait_for(runners)) throw std::runtime_error("a runner failed");
  const double daemons = cpu_of(terms.daemons) - daemons_before;
  const double machine = machine_cpu() - machine_before;
  Outcome outcome = sum_up(board, terms.processes);
  outcome.daemon_cpu = daemons;
  outcome.other_cpu = std::max(0.0, machine - daemons - outcome.own_cpu);
  return outcome;
}

}  // namespace cacheshim::race
