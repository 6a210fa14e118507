// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "cuda_hooks/driver_api.h"

// The drivers of this process. Each driver has a slot with the real functions behind the hooks, and
// the driver's functions that the hooks call.
//
// Slot 0 serves programs and libraries that are linked to the driver. Our exports come before the driver in the search
// order, and each export finds the driver's function at its first call. Each other slot serves one image of libcuda.so.
// An image gets a slot when a program looks up a function in it with dlsym. Usually there is one image; dlmopen creates
// more, each with its own functions and state.
namespace cacheshim::cuda {

enum class Row : unsigned {
#define CACHESHIM_CUDA_SYMBOL(name, group, parameters, arguments) name,
#include "cuda_hooks/symbols.def"
#undef CACHESHIM_CUDA_SYMBOL
  kCount
};

enum class Call : unsigned {
#define CACHESHIM_CUDA_CALL(name) name,
#include "cuda_hooks/calls.def"
#undef CACHESHIM_CUDA_CALL
  kCount
};

inline constexpr int kDirectSlot = 0;
inline constexpr int kSlots = 4;

// Returns the row of the driver's function `name`, or Row::kCount.
Row find_row(const char* name);

class Driver {
 public:
  // Returns the function behind our hook of `row`, or null if there is no driver, or if the driver
  // has no such function.
  void* find_real(Row row);
  void set_real(Row row, void* function) {
    real_[static_cast<unsigned>(row)].store(function, std::memory_order_release);
  }

  // Returns the driver's function of this name, or null if this driver has none.
#define CACHESHIM_CUDA_CALL(name) \
  auto name() { return reinterpret_cast<decltype(&::name)>(find_call(Call::name)); }
#include "cuda_hooks/calls.def"
#undef CACHESHIM_CUDA_CALL

 private:
  friend int find_slot(void* function, void* handle);
  void* find_call(Call call);
  void* base();
  // Assigns this slot to the image at `base`. Returns false if the slot is not free, because another thread has taken
  // it.
  bool take(void* base, void* handle);

  std::atomic<void*> base_{nullptr};  // the image's address; null for slot 0, and if the slot is free
  std::atomic<void*> real_[static_cast<unsigned>(Row::kCount)] = {};
  std::atomic<void*> calls_[static_cast<unsigned>(Call::kCount)] = {};
};

extern Driver drivers[kSlots];

// Returns the slot of the libcuda image that contains `function`; assigns a slot if the image has
// none. `handle` is the handle that dlsym searched. Returns kDirectSlot if no libcuda image
// contains the function (another library may have a function of this name), or if there are more
// images than slots.
int find_slot(void* function, void* handle);

// Returns the hook of `row` that calls the driver of `slot`.
void* find_hook(int slot, Row row);

}  // namespace cacheshim::cuda
