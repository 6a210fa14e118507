// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/preload.h"

#include <regex.h>
#include <sched.h>
#include <sys/mman.h>

#include "common/report.h"
#include "cuda_hooks/costs.h"
#include "cuda_hooks/process.h"

namespace cacheshim::cuda {
namespace {

enum State { kUnknown, kCompiling, kUsable, kUnusable };
constinit std::atomic<int> state{kUnknown};
constinit regex_t pattern{};
constinit std::atomic<bool> said_old_driver{false};
constinit std::atomic<bool> said_no_context{false};

int compile() {
  const std::string_view text = plan().match;
  if (text.empty()) {
    report_line({kCudaEagerVariable, "=select without ", kCudaMatchVariable,
                 ": no kernel is preloaded; modules are loaded lazily"});
    return kUnusable;
  }
  if (::regcomp(&pattern, text.data(), REG_EXTENDED | REG_NOSUB) == 0) return kUsable;
  report_line({kCudaMatchVariable, " '", text,
               "' is not a POSIX extended regular expression: no kernel is preloaded; modules are "
               "loaded lazily"});
  return kUnusable;
}

bool matches(const char* name) {
  return name != nullptr && ::regexec(&pattern, name, 0, nullptr, 0) == 0;
}

// Space for the driver's handles of all functions of a module. Allocated with mmap(2), because no hook
// may call malloc(3).
template <class Handle>
class HandleArray {
 public:
  explicit HandleArray(unsigned count) : bytes_(count * sizeof(Handle)) {
    if (bytes_ == 0) return;
    void* const pages =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages != MAP_FAILED) handles_ = static_cast<Handle*>(pages);
  }
  ~HandleArray() {
    if (handles_ != nullptr) (void)::munmap(handles_, bytes_);  // cannot fail for our own mapping
  }
  HandleArray(const HandleArray&) = delete;
  HandleArray& operator=(const HandleArray&) = delete;
  Handle* get() const { return handles_; }

 private:
  std::size_t bytes_;
  Handle* handles_ = nullptr;
};

void say_old_driver() {
  if (!is_first(said_old_driver)) return;
  report_line({kCudaEagerVariable,
               "=select needs a driver of CUDA 12.4 or newer: no kernel is "
               "preloaded; modules are loaded lazily"});
}

bool has_context(Driver& driver) {
  CUcontext context = nullptr;
  const auto get_current = driver.cuCtxGetCurrent();
  return get_current != nullptr && get_current(&context) == CUDA_SUCCESS && context != nullptr;
}

}  // namespace

bool is_selecting() {
  if (plan().policy != CudaPolicy::kSelect) return false;
  int expected = kUnknown;
  if (state.compare_exchange_strong(expected, kCompiling)) {
    state.store(compile(), std::memory_order_release);
  }
  while (state.load(std::memory_order_acquire) == kCompiling) (void)::sched_yield();
  return state.load(std::memory_order_acquire) == kUsable;
}

void preload_module(Driver& driver, CUmodule module) {
  const auto get_count = driver.cuModuleGetFunctionCount();
  const auto enumerate = driver.cuModuleEnumerateFunctions();
  const auto get_name = driver.cuFuncGetName();
  const auto load = driver.cuFuncLoad();
  if (get_count == nullptr || enumerate == nullptr || get_name == nullptr || load == nullptr) {
    return say_old_driver();
  }
  unsigned count = 0;
  if (get_count(&count, module) != CUDA_SUCCESS) return;
  const HandleArray<CUfunction> functions(count);
  if (functions.get() == nullptr) return;
  if (enumerate(functions.get(), count, module) != CUDA_SUCCESS) return;
  unsigned loaded = 0;
  for (unsigned i = 0; i < count; ++i) {
    const char* name = nullptr;
    if (get_name(&name, functions.get()[i]) != CUDA_SUCCESS || !matches(name)) continue;
    if (load(functions.get()[i]) == CUDA_SUCCESS) ++loaded;
  }
  note_preloaded(loaded);
}

void preload_library(Driver& driver, CUlibrary library) {
  const auto get_count = driver.cuLibraryGetKernelCount();
  const auto enumerate = driver.cuLibraryEnumerateKernels();
  const auto get_name = driver.cuKernelGetName();
  const auto get_function = driver.cuKernelGetFunction();
  const auto load = driver.cuFuncLoad();
  if (get_count == nullptr || enumerate == nullptr || get_name == nullptr ||
      get_function == nullptr || load == nullptr) {
    return say_old_driver();
  }
  if (!has_context(driver)) {
    if (!is_first(said_no_context)) return;
    return report_line({kCudaEagerVariable,
                        "=select: a library was loaded while no context was "
                        "current; its kernels are loaded lazily"});
  }
  unsigned count = 0;
  if (get_count(&count, library) != CUDA_SUCCESS) return;
  const HandleArray<CUkernel> kernels(count);
  if (kernels.get() == nullptr) return;
  if (enumerate(kernels.get(), count, library) != CUDA_SUCCESS) return;
  unsigned loaded = 0;
  for (unsigned i = 0; i < count; ++i) {
    const char* name = nullptr;
    CUfunction function = nullptr;
    if (get_name(&name, kernels.get()[i]) != CUDA_SUCCESS || !matches(name)) continue;
    if (get_function(&function, kernels.get()[i]) != CUDA_SUCCESS) continue;
    if (load(function) == CUDA_SUCCESS) ++loaded;
  }
  note_preloaded(loaded);
}

}  // namespace cacheshim::cuda
