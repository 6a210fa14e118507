// SPDX-License-Identifier: Apache-2.0
//
// shim_bench calls PATH       prints the lowest CPU time of an open and of a stat of PATH, in nanoseconds
// shim_bench start N COMMAND  prints the medians of the CPU and wall times of N starts of COMMAND in this environment,
//                             in microseconds
//
// Both commands print one JSON object. main.py runs this program with and without the preloaded library.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

constexpr int kBatches = 200;
constexpr int kBatch = 2000;

double seconds(clockid_t clock) {
  timespec now{};
  (void)::clock_gettime(clock, &now);  // cannot fail
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Returns the time per call in the least disturbed batch.
template <class Call>
double least_ns(Call call) {
  double least = 1e9;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < kBatch; ++i) call();
    least = std::min(least, (seconds(CLOCK_PROCESS_CPUTIME_ID) - begin) * 1e9 / kBatch);
  }
  return least;
}

// Leaves out the time of close: the descriptors are closed between the batches.
double least_open_ns(const char* path) {
  constexpr int kOpenAtOnce = 500;
  double least = 1e9;
  for (int batch = 0; batch < kBatches * 4; ++batch) {
    int last = -1;
    const double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < kOpenAtOnce; ++i) last = ::open(path, O_RDONLY | O_CLOEXEC);
    least = std::min(least, (seconds(CLOCK_PROCESS_CPUTIME_ID) - begin) * 1e9 / kOpenAtOnce);
    if (last < 0) std::exit(1);
    for (int fd = 3; fd <= last; ++fd) (void)::close(fd);
  }
  return least;
}

int measure_calls(const char* path) {
  const double open_ns = least_open_ns(path);
  const double stat_ns = least_ns([path] {
    struct stat status {};
    if (::stat(path, &status) != 0) std::exit(1);
  });
  std::printf("{\"open\": %.2f, \"stat\": %.2f}\n", open_ns, stat_ns);
  return 0;
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double microseconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
}

int measure_start(int count, char** command) {
  std::vector<double> wall;
  std::vector<double> cpu;
  for (int i = 0; i < count; ++i) {
    const double begin = seconds(CLOCK_MONOTONIC);
    pid_t child = 0;
    rusage usage{};
    int status = 0;
    if (::posix_spawnp(&child, command[0], nullptr, nullptr, command, ::environ) != 0) return 1;
    if (::wait4(child, &status, 0, &usage) != child || status != 0) return 1;
    wall.push_back((seconds(CLOCK_MONOTONIC) - begin) * 1e6);
    cpu.push_back(microseconds(usage.ru_utime) + microseconds(usage.ru_stime));
  }
  std::printf("{\"wall\": %.1f, \"cpu\": %.1f}\n", median(wall), median(cpu));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 2 ? argv[1] : "";
  if (what == "calls") return measure_calls(argv[2]);
  if (what == "start" && argc > 3) return measure_start(std::atoi(argv[2]), argv + 3);
  std::fputs("usage: shim_bench calls PATH | start N COMMAND…\n", stderr);
  return 2;
}
