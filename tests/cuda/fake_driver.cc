// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/fake_driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

// A libcuda.so.1 for machines without a GPU: simulates the parts of the driver that cause the
// deadlock.
//
// A context has one lock. Loading a function takes the lock and, with the lock held, waits until no
// spin kernel is resident. A copy also takes the lock, and only a copy ends the spin kernel before
// its timeout. With lazy loading, the first launch of a kernel loads the kernel, so the launch hangs
// until the timeout if a spin kernel is resident, as on a GPU.
//
// An image is a text with the names of its kernels, "NAME;NAME…". The library is linked with -Bsymbolic, and its
// cuGetProcAddress uses the library's own table, so that no call within the library reaches a hook.
//
// If FAKE_CUDA_OLD is defined, the library lacks the functions added after CUDA 11.6. Variables:
//  FAKE_CUDA_TRACE=FILE: appends to FILE a line for each call of most functions, with the name of
//    the calling library, and a line for each load of a kernel
//  FAKE_CUDA_SPIN_MS: the timeout in milliseconds; default: 3000
//  FAKE_CUDA_STUBBORN=1: loads lazily even if the environment asks for eager loading

struct CUfunc_st {
  std::string name;
  bool loaded = false;
};
struct CUkern_st {
  CUfunc_st function;
};
struct CUmod_st {
  std::vector<std::unique_ptr<CUfunc_st>> functions;
};
struct CUlib_st {
  std::vector<std::unique_ptr<CUkern_st>> kernels;
};
struct CUctx_st {};

namespace {

using Lock = std::unique_lock<std::mutex>;

std::mutex context_lock;
std::mutex spin_lock;
std::condition_variable spin_changed;
bool spin_is_resident = false;
bool spin_is_released = false;
bool spin_has_timed_out = false;
int launches_settled = 0;

bool is_initialized = false;
bool is_eager = false;
CUctx_st the_context;
thread_local CUcontext current_context = nullptr;
bool context_exists = false;
std::vector<std::unique_ptr<CUmod_st>> modules;
std::vector<std::unique_ptr<CUlib_st>> libraries;
std::size_t free_bytes = std::size_t{1} << 30;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void trace(const std::string& what, void* caller) {
  const std::string file = variable("FAKE_CUDA_TRACE");
  if (file.empty()) return;
  Dl_info info{};
  std::string by = "?";
  if (::dladdr(caller, &info) != 0 && info.dli_fname != nullptr) {
    by = info.dli_fname;
    by.erase(0, by.rfind('/') + 1);
  }
  const std::string line = what + " " + by + "\n";
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
  ::close(fd);
}

#define TRACE(what) trace(what, __builtin_return_address(0))

void settle_launch() {
  ++launches_settled;
  spin_changed.notify_all();
}

// Requires: the context's lock is held.
void load(CUfunc_st& function, bool by_launch) {
  if (function.loaded) return;
  Lock lock(spin_lock);
  if (by_launch) settle_launch();
  trace(std::string("load ") + function.name + (spin_is_resident ? " beside-spin" : " before-spin"),
        nullptr);
  spin_changed.wait(lock, [] { return !spin_is_resident; });
  function.loaded = true;
  free_bytes -= std::size_t{1} << 20;
}

void spin() {
  const std::string timeout = variable("FAKE_CUDA_SPIN_MS");
  const std::chrono::milliseconds limit(timeout.empty() ? 3000 : std::stoi(timeout));
  Lock lock(spin_lock);
  spin_has_timed_out = !spin_changed.wait_for(lock, limit, [] { return spin_is_released; });
  spin_is_resident = false;
  spin_changed.notify_all();
}

std::vector<std::string> kernels_of(const std::string& image) {
  std::vector<std::string> names;
  std::istringstream text(image);
  for (std::string name; std::getline(text, name, ';');) names.push_back(name);
  return names;
}

std::string text_of(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

CUresult make_module(CUmodule* out, const std::string& image) {
  if (!is_initialized) return kErrorNotInitialized;
  if (current_context == nullptr) return kErrorInvalidContext;
  auto module = std::make_unique<CUmod_st>();
  const Lock lock(context_lock);
  for (const std::string& name : kernels_of(image)) {
    module->functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{name}));
    if (is_eager) load(*module->functions.back(), false);
  }
  *out = module.get();
  modules.push_back(std::move(module));
  return CUDA_SUCCESS;
}

[[maybe_unused]] CUresult make_library(CUlibrary* out, const std::string& image) {
  if (!is_initialized) return kErrorNotInitialized;
  auto library = std::make_unique<CUlib_st>();
  const Lock lock(context_lock);
  for (const std::string& name : kernels_of(image)) {
    library->kernels.push_back(std::make_unique<CUkern_st>(CUkern_st{CUfunc_st{name}}));
    if (is_eager && context_exists) load(library->kernels.back()->function, false);
  }
  *out = library.get();
  libraries.push_back(std::move(library));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int) {
  if (!is_initialized) {
    const std::string mode = variable("CUDA_MODULE_LOADING");
    is_eager = mode == "EAGER" && variable("FAKE_CUDA_STUBBORN").empty();
    // The real driver loads nsys and ncu in this way.
    const std::string injection = variable("CUDA_INJECTION64_PATH");
    void* const tool = injection.empty() ? nullptr : ::dlopen(injection.c_str(), RTLD_NOW);
    void* const entry = tool == nullptr ? nullptr : ::dlsym(tool, "InitializeInjection");
    if (entry != nullptr) reinterpret_cast<int (*)()>(entry)();
    is_initialized = true;
    TRACE("cuInit " + (mode.empty() ? "unset" : mode));
  } else {
    TRACE("cuInit again");
  }
  return CUDA_SUCCESS;
}

#ifndef FAKE_CUDA_OLD
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  TRACE("cuModuleGetLoadingMode");
  *mode = is_eager ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return is_initialized ? CUDA_SUCCESS : kErrorNotInitialized;
}
#endif

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  TRACE("cuModuleLoad");
  return make_module(module, text_of(path));
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  TRACE("cuModuleLoadData");
  return make_module(module, static_cast<const char*>(image));
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*,
                            void**) {
  TRACE("cuModuleLoadDataEx");
  return make_module(module, static_cast<const char*>(image));
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  TRACE("cuModuleLoadFatBinary");
  return make_module(module, static_cast<const char*>(image));
}
#ifndef FAKE_CUDA_OLD
CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**,
                           unsigned int, CUlibraryOption*, void**, unsigned int) {
  TRACE("cuLibraryLoadData");
  return make_library(library, static_cast<const char*>(image));
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**,
                               unsigned int, CUlibraryOption*, void**, unsigned int) {
  TRACE("cuLibraryLoadFromFile");
  return make_library(library, text_of(path));
}
#endif

// With eager loading, creating a context loads the existing libraries into the context.
CUresult cuCtxCreate_v2(CUcontext* context, unsigned int, CUdevice) {
  const Lock lock(context_lock);
  for (const auto& library : libraries) {
    for (const auto& kernel : library->kernels) {
      if (is_eager) load(kernel->function, false);
    }
  }
  context_exists = true;
  *context = current_context = &the_context;
  return is_initialized ? CUDA_SUCCESS : kErrorNotInitialized;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current_context;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = free_bytes;
  *total = std::size_t{1} << 30;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  for (const auto& known : module->functions) {
    if (known->name != name) continue;
    *function = known.get();
    return CUDA_SUCCESS;
  }
  return kErrorNotFound;
}
#ifndef FAKE_CUDA_OLD
CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module) {
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}
CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule module) {
  for (unsigned i = 0; i < count; ++i) functions[i] = module->functions.at(i).get();
  return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char** name, CUfunction function) {
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction function) {
  TRACE("cuFuncLoad " + function->name);
  const Lock lock(context_lock);
  load(*function, false);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  for (const auto& known : library->kernels) {
    if (known->function.name != name) continue;
    *kernel = known.get();
    return CUDA_SUCCESS;
  }
  return kErrorNotFound;
}
CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library) {
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}
CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary library) {
  for (unsigned i = 0; i < count; ++i) kernels[i] = library->kernels.at(i).get();
  return CUDA_SUCCESS;
}
CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  *name = kernel->function.name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  if (current_context == nullptr) return kErrorInvalidContext;
  *function = &kernel->function;
  return CUDA_SUCCESS;
}
#endif

CUresult cuLaunchKernel(CUfunction function, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, unsigned int, unsigned int, CUstream, void**, void**) {
  {
    const Lock lock(context_lock);
    const bool waited = !function->loaded;
    load(*function, true);
    const Lock spin_guard(spin_lock);
    if (!waited) settle_launch();
  }
  if (function->name == "spin") {
    const Lock lock(spin_lock);
    spin_is_resident = true;
    std::thread(spin).detach();
  }
  return CUDA_SUCCESS;
}

// The variant for programs that are built with a default stream per thread.
CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int, unsigned int, unsigned int,
                             unsigned int, unsigned int, unsigned int, unsigned int, CUstream,
                             void**, void**) {
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream) {
  const Lock lock(context_lock);
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  const Lock spin_guard(spin_lock);
  spin_is_released = true;
  spin_changed.notify_all();
  return CUDA_SUCCESS;
}

void fake_wait_for_launches(int launches) {
  Lock lock(spin_lock);
  spin_changed.wait(lock, [&] { return launches_settled >= launches; });
}

int fake_spin_timed_out() {
  Lock lock(spin_lock);
  spin_changed.wait(lock, [] { return !spin_is_resident; });
  return spin_has_timed_out ? 1 : 0;
}

}  // extern "C"

namespace {

struct Entry {
  const char* symbol;
  void* function;
};

void* find_entry(const char* symbol);

CUresult look_up(const char* symbol, void** function, CUdriverProcAddressQueryResult* status) {
  *function = find_entry(symbol);
  const bool found = *function != nullptr;
  if (status != nullptr) {
    *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found ? CUDA_SUCCESS : kErrorNotFound;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  TRACE(std::string("cuGetProcAddress_v2 ") + symbol);
  if (flags == kPerThreadStream && std::strcmp(symbol, "cuLaunchKernel") == 0) {
    *function = reinterpret_cast<void*>(&cuLaunchKernel_ptsz);
    return CUDA_SUCCESS;
  }
  if (std::strcmp(symbol, "cuGetProcAddress") == 0) {
    *function = version >= 12000 ? reinterpret_cast<void*>(&cuGetProcAddress_v2)
                                 : reinterpret_cast<void*>(&cuGetProcAddress);
    if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
  }
  return look_up(symbol, function, status);
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  TRACE(std::string("cuGetProcAddress ") + symbol);
  if (std::strcmp(symbol, "cuGetProcAddress") == 0) {
    return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
  }
  return look_up(symbol, function, nullptr);
}
}

namespace {

// Finds a function by the name that cuGetProcAddress takes, without a version suffix.
void* find_entry(const char* symbol) {
#define ENTRY(name, function) \
  Entry { name, reinterpret_cast<void*>(&function) }
  static const Entry entries[] = {
      ENTRY("cuInit", cuInit),
#ifndef FAKE_CUDA_OLD
      ENTRY("cuModuleGetLoadingMode", cuModuleGetLoadingMode),
      ENTRY("cuFuncLoad", cuFuncLoad),
      ENTRY("cuLibraryLoadData", cuLibraryLoadData),
      ENTRY("cuLibraryLoadFromFile", cuLibraryLoadFromFile),
      ENTRY("cuLibraryGetKernel", cuLibraryGetKernel),
      ENTRY("cuKernelGetFunction", cuKernelGetFunction),
#endif
      ENTRY("cuModuleLoad", cuModuleLoad),
      ENTRY("cuModuleLoadData", cuModuleLoadData),
      ENTRY("cuModuleLoadDataEx", cuModuleLoadDataEx),
      ENTRY("cuModuleLoadFatBinary", cuModuleLoadFatBinary),
      ENTRY("cuCtxCreate", cuCtxCreate_v2),
      ENTRY("cuCtxGetCurrent", cuCtxGetCurrent),
      ENTRY("cuMemGetInfo", cuMemGetInfo_v2),
      ENTRY("cuModuleGetFunction", cuModuleGetFunction),
      ENTRY("cuLaunchKernel", cuLaunchKernel),
      ENTRY("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2),
  };
#undef ENTRY
  for (const Entry& entry : entries) {
    if (std::strcmp(entry.symbol, symbol) == 0) return entry.function;
  }
  return nullptr;
}

}  // namespace
