// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/costs.h"
#include "cuda_hooks/driver.h"
#include "cuda_hooks/preload.h"
#include "cuda_hooks/process.h"

#include "common/report.h"
#include "cuda_hooks/loading_variable.h"

// The hooks: one body for each kind of function in symbols.def.
//
// They run between an application and its driver. So they hold no lock during the driver's call,
// and return the driver's result. Calls that the driver itself makes to hooked functions pass
// through unchanged.
namespace cacheshim::cuda {
namespace {

constinit std::atomic<bool> said_lazy_user{false};
constinit std::atomic<bool> said_lazy_driver{false};
constinit std::atomic<bool> said_refused{false};
constinit thread_local int depth = 0;

class DepthGuard {
 public:
  DepthGuard() { ++depth; }
  ~DepthGuard() { --depth; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
};

bool passes_through() { return depth > 0 || is_off(); }

// The real function behind one hook.
template <class Function>
struct Target {
  int slot;
  Row row;
  Driver& driver() const { return drivers[slot]; }
  Function find() const { return reinterpret_cast<Function>(driver().find_real(row)); }
};

void say_what_is_set() {
  const Plan& now = plan();
  if (!now.refused_policy.empty() && is_first(said_refused)) {
    report_line(
        {kCudaEagerVariable, " '", now.refused_policy,
         "' is none of off, auto, force, select; using auto instead"});
  }
  if (now.user_is_lazy && is_first(said_lazy_user)) {
    report_line({kLoadingVariable,
                 "=LAZY is respected: a kernel's first launch may wait forever "
                 "for a kernel that is running; ",
                 kCudaEagerVariable, "=force overrides this"});
  }
}

// Records the driver's loading mode, and reports a driver that is lazy although the plan is EAGER. Drivers before CUDA
// 11.7 lack the query, and never load lazily.
void check_driver(Driver& driver) {
  CUmoduleLoadingMode mode = CU_MODULE_EAGER_LOADING;
  const auto get_mode = driver.cuModuleGetLoadingMode();
  const bool known = get_mode != nullptr && get_mode(&mode) == CUDA_SUCCESS;
  const bool is_lazy = known && mode == CU_MODULE_LAZY_LOADING;
  note_driver(!is_lazy);
  if (plan().loading != Loading::kEager || !is_lazy || !is_first(said_lazy_driver)) return;
  report_line({"the CUDA driver loads modules lazily in spite of ", kLoadingVariable,
               "=EAGER (was it initialized before that was set?); a kernel's first launch may wait "
               "forever for a kernel that is running"});
}

template <class Function>
CUresult hook_Init(Target<Function> target, unsigned int flags) {
  const Function real = target.find();
  if (real == nullptr) return CUDA_ERROR_NO_DEVICE;
  if (passes_through()) return real(flags);
  const DepthGuard guard;
  say_what_is_set();
  ensure_loading(plan().loading);
  const CUresult result = real(flags);
  if (result == CUDA_SUCCESS) check_driver(target.driver());
  return result;
}

template <class Function, class... Rest>
CUresult hook_Module(Target<Function> target, CUmodule* module, Rest... rest) {
  const Function real = target.find();
  if (real == nullptr) return CUDA_ERROR_NO_DEVICE;
  if (passes_through()) return real(module, rest...);
  const DepthGuard guard;
  CostMeter meter(target.driver());
  const CUresult result = real(module, rest...);
  if (result != CUDA_SUCCESS || module == nullptr) return result;
  meter.count_module(*module);
  if (is_selecting()) preload_module(target.driver(), *module);
  return result;
}

template <class Function, class... Rest>
CUresult hook_Library(Target<Function> target, CUlibrary* library, Rest... rest) {
  const Function real = target.find();
  if (real == nullptr) return CUDA_ERROR_NO_DEVICE;
  if (passes_through()) return real(library, rest...);
  const DepthGuard guard;
  CostMeter meter(target.driver());
  const CUresult result = real(library, rest...);
  if (result != CUDA_SUCCESS || library == nullptr) return result;
  meter.count_library(*library);
  if (is_selecting()) preload_library(target.driver(), *library);
  return result;
}

// The CUDA runtime registers all kernels early if the loading mode is EAGER; otherwise it registers each kernel at its
// first launch. The policy `select` needs the kernels early, so this hook returns EAGER to the runtime although the
// driver is lazy.
template <class Function>
CUresult hook_Mode(Target<Function> target, CUmoduleLoadingMode* mode) {
  const Function real = target.find();
  if (real == nullptr) return CUDA_ERROR_NO_DEVICE;
  const CUresult result = real(mode);
  if (passes_through() || result != CUDA_SUCCESS || mode == nullptr) return result;
  if (is_selecting()) *mode = CU_MODULE_EAGER_LOADING;
  return result;
}

// Returns the row of the function that the caller gets. cuGetProcAddress has two versions of the
// same name; the requested API version selects one.
Row find_row_of(const char* symbol, int version) {
  const Row row = find_row(symbol);
  constexpr int kSecondVersionSince = 12000;
  if (version < kSecondVersionSince || row == Row::kCount) return row;
  return row == find_row("cuGetProcAddress") ? find_row("cuGetProcAddress_v2") : row;
}

template <class Function, class... Rest>
CUresult hook_Lookup(Target<Function> target, const char* symbol, void** function, int version,
                     Rest... rest) {
  const Function real = target.find();
  if (real == nullptr) return CUDA_ERROR_NO_DEVICE;
  const CUresult result = real(symbol, function, version, rest...);
  if (passes_through() || result != CUDA_SUCCESS) return result;
  if (symbol == nullptr || function == nullptr || *function == nullptr) return result;
  const Row row = find_row_of(symbol, version);
  if (row == Row::kCount) return result;
  target.driver().set_real(row, *function);
  *function = find_hook(target.slot, row);
  return result;
}

#define CACHESHIM_UNWRAP(...) __VA_ARGS__

template <int kSlot>
struct Hooks {
#define CACHESHIM_CUDA_SYMBOL(name, group, parameters, arguments)                                 \
  static CUresult name parameters {                                                               \
    return hook_##group(Target<decltype(&::name)>{kSlot, Row::name}, CACHESHIM_UNWRAP arguments); \
  }
#include "cuda_hooks/symbols.def"
#undef CACHESHIM_CUDA_SYMBOL
};

template <int kSlot>
void* hook_of(Row row) {
  switch (row) {
#define CACHESHIM_CUDA_SYMBOL(name, group, parameters, arguments) \
  case Row::name:                                                 \
    return reinterpret_cast<void*>(&Hooks<kSlot>::name);
#include "cuda_hooks/symbols.def"
#undef CACHESHIM_CUDA_SYMBOL
    case Row::kCount:
      break;
  }
  return nullptr;
}

}  // namespace

void* find_hook(int slot, Row row) {
  static_assert(kSlots == 4);
  switch (slot) {
    case 0:
      return hook_of<0>(row);
    case 1:
      return hook_of<1>(row);
    case 2:
      return hook_of<2>(row);
    default:
      return hook_of<3>(row);
  }
}

}  // namespace cacheshim::cuda

// The exports: programs and libraries that are linked to the driver call them instead of the
// driver's own functions.
#define CACHESHIM_CUDA_SYMBOL(name, group, parameters, arguments)                                  \
  extern "C" [[gnu::visibility("default")]] CUresult name parameters {                             \
    return cacheshim::cuda::Hooks<cacheshim::cuda::kDirectSlot>::name(CACHESHIM_UNWRAP arguments); \
  }
#include "cuda_hooks/symbols.def"
#undef CACHESHIM_CUDA_SYMBOL
