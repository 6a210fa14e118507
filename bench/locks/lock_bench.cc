// SPDX-License-Identifier: Apache-2.0
//
// lock_bench MEASURE FILE [OTHER] [--rounds N] [--waiters W] [--pid P] [--descriptors D]
//
// Measures locks. Prints one JSON object. All values are in microseconds, except `cpu`, which is in percent of a core.
//   pair FILE                 an uncontended LOCK_EX and LOCK_UN
//   handover FILE OTHER       from LOCK_UN of OTHER to the return of a waiting LOCK_EX of FILE; OTHER is a path of the
//                             same file
//   crowd FILE OTHER          W processes wait for the lock of FILE, which this process holds: the time to read and
//                             write OTHER, before and meanwhile; the CPU use of process P; the time until each of
//                             them has held the lock once, divided by W
//   refused FILE OTHER        a process with D other descriptors holds the lock of FILE: F_SETLK, LOCK_NB and stat(2)
//                             of FILE; creating and removing OTHER, alone and while a process polls for the lock
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "common/unique_fd.h"

namespace {

using cacheshim::UniqueFd;
using Json = nlohmann::ordered_json;

double now_us() {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

[[noreturn]] void fail(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

UniqueFd open_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) fail(path);
  return fd;
}

void lock(const UniqueFd& fd, int operation) {
  if (::flock(fd.get(), operation) != 0) fail("flock");
}

void pause_us(long span) {
  const timespec pause{span / 1'000'000, span % 1'000'000 * 1000};
  (void)::nanosleep(&pause, nullptr);
}

Json summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
  };
  return {{"min", at(0)}, {"median", at(0.5)}, {"p99", at(0.99)}, {"max", at(1)}};
}

Json measure_pair(const std::string& path, int rounds) {
  const UniqueFd fd = open_file(path);
  std::vector<double> spans;
  for (int round = 0; round < rounds; ++round) {
    const double begin = now_us();
    lock(fd, LOCK_EX);
    lock(fd, LOCK_UN);
    spans.push_back(now_us() - begin);
  }
  return summary(std::move(spans));
}

// The shared state of the processes of one measurement.
struct Board {
  // handover: the number of the round whose lock the waiter is about to request; crowd: the number of waiting processes
  std::atomic<int> waiting{0};
  std::atomic<int> done{0};
  std::atomic<double> freed{0};
  std::atomic<double> got{0};
};

Board& make_board() {
  void* memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  return *new (memory) Board;
}

void wait_until(const std::atomic<int>& value, int least) {
  while (value < least) pause_us(50);
}

Json measure_handover(const std::string& path, const std::string& other, int rounds) {
  Board& board = make_board();
  const UniqueFd held = open_file(other);
  const pid_t child = ::fork();
  if (child == 0) {
    const UniqueFd fd = open_file(path);
    for (int round = 1; round <= rounds; ++round) {
      wait_until(board.done, 2 * round - 1);  // until the holder has the lock
      board.waiting = round;
      lock(fd, LOCK_EX);
      board.got = now_us();
      lock(fd, LOCK_UN);
      board.done = 2 * round;
    }
    ::_exit(0);
  }
  std::vector<double> spans;
  for (int round = 1; round <= rounds; ++round) {
    lock(held, LOCK_EX);
    board.done = 2 * round - 1;
    wait_until(board.waiting, round);
    // After this delay, the waiter is blocked in flock(2). The delay varies, so that it does not coincide with a
    // polling interval.
    pause_us(2000 + 700 * (round % 8));
    board.freed = now_us();
    lock(held, LOCK_UN);
    wait_until(board.done, 2 * round);
    spans.push_back(board.got - board.freed);
  }
  (void)::waitpid(child, nullptr, 0);
  return summary(std::move(spans));
}

// Returns the user and system time of a process, in clock ticks.
long ticks_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  long user = 0, system = 0;
  for (int number = 3; number < 14; ++number) fields >> field;
  fields >> user >> system;
  return user + system;
}

double cpu_percent(pid_t pid) {
  constexpr long kSpanUs = 5'000'000;
  const long before = ticks_of(pid);
  pause_us(kSpanUs);
  const auto used = static_cast<double>(ticks_of(pid) - before);
  return 100 * used / static_cast<double>(::sysconf(_SC_CLK_TCK)) / (kSpanUs / 1e6);
}

void read_and_write(const std::string& path, int rounds, Json& result) {
  std::vector<double> reads, writes;
  char bytes[4096] = {};
  for (int round = 0; round < rounds; ++round) {
    double begin = now_us();
    {
      const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
      if (::pwrite(fd.get(), bytes, sizeof bytes, 0) != sizeof bytes) fail(path);
    }
    writes.push_back(now_us() - begin);
    begin = now_us();
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (::pread(fd.get(), bytes, sizeof bytes, 0) != sizeof bytes) fail(path);
    reads.push_back(now_us() - begin);
  }
  result["read"] = summary(std::move(reads));
  result["write"] = summary(std::move(writes));
}

Json measure_crowd(const std::string& path, const std::string& other, int waiters, pid_t pid) {
  Board& board = make_board();
  Json result;
  constexpr int kRounds = 500;
  read_and_write(other, kRounds, result["alone"]);
  const UniqueFd held = open_file(path);
  lock(held, LOCK_EX);
  for (int waiter = 0; waiter < waiters; ++waiter) {
    const pid_t child = ::fork();
    if (child == -1) fail("fork");
    if (child != 0) continue;
    const UniqueFd fd = open_file(path);
    ++board.waiting;
    lock(fd, LOCK_EX);
    ++board.done;
    ::_exit(0);
  }
  wait_until(board.waiting, waiters);
  pause_us(1'000'000);
  read_and_write(other, kRounds, result["beside_waiters"]);
  pause_us(1'000'000);
  if (pid > 0) result["cpu"] = cpu_percent(pid);
  const double begin = now_us();
  lock(held, LOCK_UN);
  wait_until(board.done, waiters);
  result["each_in_turn"] = (now_us() - begin) / waiters;
  while (::wait(nullptr) > 0) {
  }
  return result;
}

// Starts a process that creates `path` and holds an flock and a record lock on it until it is
// killed.
pid_t start_holder(const std::string& path, int descriptors) {
  (void)::unlink(path.c_str());
  Board& board = make_board();
  const pid_t child = ::fork();
  if (child == -1) fail("fork");
  if (child != 0) {
    wait_until(board.done, 1);
    return child;
  }
  std::vector<UniqueFd> others;
  for (int number = 0; number < descriptors; ++number) others.push_back(open_file("/dev/null"));
  const UniqueFd fd = open_file(path);
  lock(fd, LOCK_EX);
  struct flock range {};
  range.l_type = F_WRLCK;
  if (::fcntl(fd.get(), F_SETLK, &range) != 0) fail("F_SETLK");
  board.done = 1;
  for (;;) ::pause();
}

void end(pid_t child) {
  (void)::kill(child, SIGKILL);
  (void)::waitpid(child, nullptr, 0);
}

bool is_refused(int fd) {
  struct flock range {};
  range.l_type = F_WRLCK;
  return ::fcntl(fd, F_SETLK, &range) == -1 && errno == EAGAIN;
}

template <class Call>
Json measure_calls(int rounds, Call&& call) {
  std::vector<double> spans;
  for (int round = 0; round < rounds; ++round) {
    const double begin = now_us();
    if (!call()) fail("unexpected result");
    spans.push_back(now_us() - begin);
  }
  return summary(std::move(spans));
}

Json measure_refused(const std::string& path, const std::string& other, int rounds,
                     int descriptors) {
  const pid_t holder = start_holder(path, descriptors);
  const UniqueFd fd = open_file(path);
  const auto make_and_remove = [&] {
    const UniqueFd made(::open(other.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return made && ::unlink(other.c_str()) == 0;
  };
  Json result;
  struct stat st {};
  result["stat"] = measure_calls(rounds, [&] { return ::stat(path.c_str(), &st) == 0; });
  result["F_SETLK"] = measure_calls(rounds, [&] { return is_refused(fd.get()); });
  result["LOCK_NB"] =
      measure_calls(rounds, [&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0; });
  result["create and unlink"] = measure_calls(rounds, make_and_remove);
  const pid_t poller = ::fork();
  if (poller == 0) {
    while (is_refused(fd.get())) {
    }
    ::_exit(1);
  }
  result["create and unlink beside a poller"] = measure_calls(rounds, make_and_remove);
  end(poller);
  end(holder);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures locks");
  std::string measure, file, other;
  int rounds = 2000, waiters = 500, descriptors = 0;
  pid_t pid = 0;
  app.add_option("MEASURE", measure)->required();
  app.add_option("FILE", file)->required();
  app.add_option("OTHER", other);
  app.add_option("--rounds", rounds);
  app.add_option("--waiters", waiters);
  app.add_option("--pid", pid);
  app.add_option("--descriptors", descriptors);
  CLI11_PARSE(app, argc, argv);
  Json result;
  if (measure == "pair") {
    result = measure_pair(file, rounds);
  } else if (measure == "handover") {
    result = measure_handover(file, other, rounds);
  } else if (measure == "crowd") {
    result = measure_crowd(file, other, waiters, pid);
  } else if (measure == "refused") {
    result = measure_refused(file, other, rounds, descriptors);
  } else {
    return 2;
  }
  std::printf("%s\n", result.dump().c_str());
  return 0;
}
