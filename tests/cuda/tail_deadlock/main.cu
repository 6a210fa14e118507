// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "tests/cuda/tail_deadlock/tail.h"

// tail_deadlock [--preload=attr] [--set=MODE]: tests whether lazy loading of a kernel deadlocks on this machine.
//
// A one-thread kernel spins until the host copies a word to the device. While it spins, the program launches a second
// kernel for the first time. If the driver loads lazily, this launch loads the kernel's module. The load waits for the
// device, and the copy waits for the load. After 5 s, the spin kernel sets `timed_out` and ends.
//
// --preload=attr loads the second kernel first, as an application would to avoid the deadlock.
// --set sets CUDA_MODULE_LOADING inside the program, before its first CUDA call.
//
// Exit status: 0 success, 1 usage, 2 a CUDA error, 3 deadlocked (until the timeout), 4 the host
// waited 30 s, 5 the launch was delayed but the copy succeeded, 77 no device.
namespace {

constexpr unsigned long long kTimeoutNs = 5'000'000'000;
constexpr int kWatchdogSeconds = 30;
constexpr auto kBeforeTheCopy = std::chrono::milliseconds(100);
constexpr int kNoDevice = 77;

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Pinned host memory that the host and the device share.
struct Shared {
  unsigned started;
  unsigned timed_out;
  unsigned one;  // the source of the copy that releases the spin kernel
};

__global__ void spin_kernel(volatile Shared* shared, const volatile unsigned* release) {
  unsigned long long begin;
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  shared->started = 1;
  __threadfence_system();
  while (*release == 0) {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - begin < kTimeoutNs) continue;
    shared->timed_out = 1;
    __threadfence_system();
    return;
  }
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::fflush(stdout);
  _exit(2);  // a kernel may be spinning, and destructors would wait for it
}

void need_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return;
  std::printf("SKIP: no CUDA device: %s\n",
              error == cudaSuccess ? "none is there" : cudaGetErrorString(error));
  std::exit(kNoDevice);
}

struct Stage {
  Shared* shared = nullptr;
  unsigned* release = nullptr;  // in device memory
  unsigned* result = nullptr;   // in device memory
  cudaStream_t spinning = nullptr;
  cudaStream_t launching = nullptr;
  cudaStream_t copying = nullptr;
};

// Makes all calls that would wait for the device if they were made while the spin kernel runs.
Stage prepare(bool preload) {
  Stage stage;
  check(cudaSetDevice(0), "cudaSetDevice");
  check(cudaHostAlloc(reinterpret_cast<void**>(&stage.shared), sizeof(Shared), cudaHostAllocMapped),
        "cudaHostAlloc");
  std::memset(stage.shared, 0, sizeof(Shared));
  stage.shared->one = 1;
  check(cudaMalloc(reinterpret_cast<void**>(&stage.release), sizeof(unsigned)), "cudaMalloc");
  check(cudaMalloc(reinterpret_cast<void**>(&stage.result), sizeof(unsigned)), "cudaMalloc");
  check(cudaMemset(stage.result, 0, sizeof(unsigned)), "cudaMemset");
  for (cudaStream_t* stream : {&stage.spinning, &stage.launching, &stage.copying}) {
    check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  const unsigned zero = 0;
  std::memcpy(&stage.shared->started, &zero, sizeof zero);
  check(cudaMemcpyAsync(stage.release, &stage.shared->started, sizeof zero, cudaMemcpyHostToDevice,
                        stage.copying),
        "the warming copy");
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, spin_kernel), "cudaFuncGetAttributes(spin)");
  if (preload) check(touch_tail(), "cudaFuncGetAttributes(tail)");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return stage;
}

struct Times {
  double launch_ms = 0;
  double copy_ms = 0;
  bool launched_before_copy = false;
};

Times run(const Stage& stage) {
  Times times;
  std::atomic<bool> launched{false};
  spin_kernel<<<1, 1, 0, stage.spinning>>>(stage.shared, stage.release);
  check(cudaGetLastError(), "launch of the spin kernel");
  while (*const_cast<volatile unsigned*>(&stage.shared->started) == 0) std::this_thread::yield();
  std::thread second([&] {
    const auto begin = Clock::now();
    check(launch_tail(stage.result, stage.launching), "launch of the tail kernel");
    times.launch_ms = ms_since(begin);
    launched.store(true);
  });
  std::this_thread::sleep_for(kBeforeTheCopy);
  times.launched_before_copy = launched.load();
  const auto begin = Clock::now();
  check(cudaMemcpyAsync(stage.release, &stage.shared->one, sizeof(unsigned), cudaMemcpyHostToDevice,
                        stage.copying),
        "the releasing copy");
  check(cudaStreamSynchronize(stage.copying), "cudaStreamSynchronize");
  times.copy_ms = ms_since(begin);
  second.join();
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return times;
}

int judge(const Stage& stage, const Times& times) {
  unsigned result = 0;
  check(cudaMemcpy(&result, stage.result, sizeof result, cudaMemcpyDeviceToHost), "cudaMemcpy");
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  const bool timed_out = stage.shared->timed_out != 0;
  std::printf("launch %.1f ms, copy %.1f ms, timed_out %d, result %u, device memory in use %.0f MiB\n",
              times.launch_ms, times.copy_ms, timed_out ? 1 : 0, result,
              static_cast<double>(total_bytes - free_bytes) / (1 << 20));
  if (timed_out || times.copy_ms * 1e6 >= kTimeoutNs / 2) return 3;
  if (result != kTailResult) return 2;
  return times.launched_before_copy ? 0 : 5;
}

}  // namespace

int main(int argc, char** argv) {
  bool preload = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--preload=attr") {
      preload = true;
    } else if (word.compare(0, 6, "--set=") == 0) {
      (void)setenv("CUDA_MODULE_LOADING", word.c_str() + 6, 1);
    } else {
      std::fprintf(stderr, "usage: tail_deadlock [--preload=attr] [--set=MODE]\n");
      return 1;
    }
  }
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(kWatchdogSeconds));
    std::printf("the host has waited for %d s\n", kWatchdogSeconds);
    std::fflush(stdout);
    _exit(4);
  }).detach();
  need_device();
  const Stage stage = prepare(preload);
  return judge(stage, run(stage));
}
