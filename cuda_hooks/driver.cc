// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/driver.h"

#include <dlfcn.h>
#include <sched.h>

#include <cstring>

#include "common/loaded_symbol.h"

namespace cacheshim::cuda {

constinit Driver drivers[kSlots];

namespace {

constinit char being_taken = 0;  // its address marks a slot that is not ready yet

constexpr const char* kRowNames[] = {
#define CACHESHIM_CUDA_SYMBOL(name, group, parameters, arguments) #name,
#include "cuda_hooks/symbols.def"
#undef CACHESHIM_CUDA_SYMBOL
};

constexpr const char* kCallNames[] = {
#define CACHESHIM_CUDA_CALL(name) #name,
#include "cuda_hooks/calls.def"
#undef CACHESHIM_CUDA_CALL
};

// Calls dlsym. If dlsym fails, clears its error, because the application's next call of dlerror would
// otherwise return that error.
void* find_quietly(void* handle, const char* name) {
  const LibcLoader loader = libc_loader();
  if (loader.dlsym == nullptr) return nullptr;
  void* const found = loader.dlsym(handle, name);
  if (found == nullptr && loader.dlerror != nullptr) (void)loader.dlerror();
  return found;
}

// Returns the next function of this name in the search order. If there is none, returns the loaded driver's function:
// Python opens its extensions with RTLD_LOCAL, so if only extensions are linked to the driver, the driver is not in the
// search order.
void* find_direct(const char* name) {
  if (!may_be_defined(SymbolName(name))) return nullptr;
  if (void* const next = find_quietly(RTLD_NEXT, name)) return next;
  // The handle need not be closed: the caller is linked to the driver, so the driver stays loaded as long as the
  // caller.
  const auto open = libc_loader().dlopen;
  if (open == nullptr) return nullptr;
  void* const driver = open("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : find_quietly(driver, name);
}

// Matches libcuda.so.1, libcuda.so.580.65.06 and so on.
bool is_driver(const char* path) {
  constexpr char kPrefix[] = "libcuda.so";
  const char* const slash = std::strrchr(path, '/');
  const char* const name = slash == nullptr ? path : slash + 1;
  return std::strncmp(name, kPrefix, sizeof kPrefix - 1) == 0;
}

}  // namespace

Row find_row(const char* name) {
  for (unsigned row = 0; row < static_cast<unsigned>(Row::kCount); ++row) {
    if (std::strcmp(name, kRowNames[row]) == 0) return static_cast<Row>(row);
  }
  return Row::kCount;
}

void* Driver::find_real(Row row) {
  const unsigned index = static_cast<unsigned>(row);
  void* const known = real_[index].load(std::memory_order_acquire);
  if (known != nullptr || this != &drivers[kDirectSlot]) return known;
  void* const found = find_direct(kRowNames[index]);
  if (found != nullptr) set_real(row, found);
  return found;
}

void* Driver::find_call(Call call) {
  const unsigned index = static_cast<unsigned>(call);
  void* const known = calls_[index].load(std::memory_order_acquire);
  if (known != nullptr || this != &drivers[kDirectSlot]) return known;
  void* const found = find_direct(kCallNames[index]);
  calls_[index].store(found, std::memory_order_release);
  return found;
}

bool Driver::take(void* base, void* handle) {
  void* calls[static_cast<unsigned>(Call::kCount)];
  for (unsigned index = 0; index < static_cast<unsigned>(Call::kCount); ++index) {
    calls[index] = find_quietly(handle, kCallNames[index]);
  }
  void* expected = nullptr;
  if (!base_.compare_exchange_strong(expected, &being_taken)) return false;
  for (unsigned index = 0; index < static_cast<unsigned>(Call::kCount); ++index) {
    calls_[index].store(calls[index], std::memory_order_relaxed);
  }
  base_.store(base, std::memory_order_release);
  return true;
}

void* Driver::base() {
  void* base = base_.load(std::memory_order_acquire);
  while (base == &being_taken) {  // wait until the other thread has filled the slot
    (void)::sched_yield();
    base = base_.load(std::memory_order_acquire);
  }
  return base;
}

int find_slot(void* function, void* handle) {
  Dl_info image{};
  const LibcLoader loader = libc_loader();
  if (loader.dladdr == nullptr || loader.dladdr(function, &image) == 0) return 0;
  if (image.dli_fname == nullptr || !is_driver(image.dli_fname)) return 0;
  for (int slot = 1; slot < kSlots; ++slot) {
    Driver& driver = drivers[slot];
    if (driver.base() == nullptr && driver.take(image.dli_fbase, handle)) return slot;
    if (driver.base() == image.dli_fbase) return slot;
  }
  return 0;
}

}  // namespace cacheshim::cuda
