// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/costs.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "common/report.h"
#include "cuda_hooks/loading_variable.h"
#include "cuda_hooks/process.h"

namespace cacheshim::cuda {
namespace {

struct Costs {
  std::atomic<std::uint64_t> modules{0};
  std::atomic<std::uint64_t> functions{0};
  std::atomic<std::uint64_t> preloaded{0};
  std::atomic<std::uint64_t> nanoseconds{0};
  std::atomic<std::int64_t> bytes{0};
};
constinit Costs costs;
// The process that initialized the driver. A forked child inherits the counts, but only the owner
// prints them.
constinit std::atomic<pid_t> owner{0};
constinit std::atomic<bool> driver_is_eager{false};

bool is_wanted() {
  const std::string_view value = ProcessEnvironment().find(kCudaReportVariable);
  return !value.empty() && std::strcmp(value.data(), "0") != 0;
}

std::uint64_t now_ns() {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &now);  // cannot fail
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Returns the number of free bytes of device memory; 0 if no context is current, or if the driver
// does not report the number.
std::size_t free_device_bytes(Driver& driver) {
  CUcontext context = nullptr;
  const auto get_current = driver.cuCtxGetCurrent();
  const auto get_info = driver.cuMemGetInfo_v2();
  if (get_current == nullptr || get_info == nullptr) return 0;
  if (get_current(&context) != CUDA_SUCCESS || context == nullptr) return 0;
  std::size_t free = 0;
  std::size_t total = 0;
  return get_info(&free, &total) == CUDA_SUCCESS ? free : 0;
}

// Formats a number of tenths: 123 as "12.3", or as "12" if `with_tenth` is false.
class Decimal {
 public:
  explicit Decimal(std::uint64_t tenths, bool with_tenth) {
    if (with_tenth) put(static_cast<char>('0' + tenths % 10));
    if (with_tenth) put('.');
    std::uint64_t whole = tenths / 10;
    do {
      put(static_cast<char>('0' + whole % 10));
      whole /= 10;
    } while (whole != 0);
  }
  std::string_view view() const { return {text_ + at_, sizeof text_ - at_}; }

 private:
  void put(char c) { text_[--at_] = c; }
  char text_[24];
  std::size_t at_ = sizeof text_;
};

std::string_view policy_name(CudaPolicy policy) {
  switch (policy) {
    case CudaPolicy::kOff:
      return "off";
    case CudaPolicy::kAuto:
      return "auto";
    case CudaPolicy::kForce:
      return "force";
    case CudaPolicy::kSelect:
      return "select";
  }
  return "";
}

[[gnu::destructor]] void report() {
  if (owner.load() != ::getpid() || !is_wanted()) return;
  const std::int64_t bytes = costs.bytes.load();
  const Decimal modules(costs.modules.load() * 10, false);
  const Decimal functions(costs.functions.load() * 10, false);
  const Decimal preloaded(costs.preloaded.load() * 10, false);
  const Decimal milliseconds(costs.nanoseconds.load() / 100'000, true);
  const Decimal mebibytes(static_cast<std::uint64_t>(bytes > 0 ? bytes : 0) * 10 / (1 << 20), true);
  report_line({"CUDA: policy ", policy_name(plan().policy), ", driver ",
               driver_is_eager.load() ? "eager" : "lazy", "; ", modules.view(), " modules, ",
               functions.view(), " functions, ", preloaded.view(), " preloaded, ",
               milliseconds.view(), " ms, ", mebibytes.view(), " MiB of device memory"});
}

}  // namespace

CostMeter::CostMeter(Driver& driver) : driver_(driver), on_(is_wanted()) {
  if (!on_) return;
  free_before_ = free_device_bytes(driver_);
  begin_ns_ = now_ns();
}

CostMeter::~CostMeter() {
  if (!on_) return;
  costs.nanoseconds += now_ns() - begin_ns_;
  const std::size_t free_after = free_before_ == 0 ? 0 : free_device_bytes(driver_);
  if (free_after == 0) return;
  costs.bytes += static_cast<std::int64_t>(free_before_) - static_cast<std::int64_t>(free_after);
}

void CostMeter::count_module(CUmodule module) {
  if (!on_) return;
  ++costs.modules;
  unsigned count = 0;
  const auto get_count = driver_.cuModuleGetFunctionCount();
  if (get_count != nullptr && get_count(&count, module) == CUDA_SUCCESS) costs.functions += count;
}

void CostMeter::count_library(CUlibrary library) {
  if (!on_) return;
  ++costs.modules;
  unsigned count = 0;
  const auto get_count = driver_.cuLibraryGetKernelCount();
  if (get_count != nullptr && get_count(&count, library) == CUDA_SUCCESS) costs.functions += count;
}

void note_driver(bool is_eager) {
  driver_is_eager.store(is_eager);
  owner.store(::getpid());
}

void note_preloaded(unsigned count) { costs.preloaded += count; }

}  // namespace cacheshim::cuda
