// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "cuda_hooks/driver_api.h"

// The drivers of this process: which functions are hooked, where the real ones are, and which hook
// stands for which.
//
// Slot 0 is what programs and libraries that are linked to the driver call: our exports come first in
// the search order, and what comes after them is looked up at the first call. The other slots are
// images of libcuda.so that somebody asked for a function by dlsym: mostly one; dlmopen makes more,
// each with functions and a state of its own.
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

// The row of the driver's function `name`, or Row::kCount.
Row find_row(const char* name);

class Driver {
 public:
  // The function behind our hook of `row`, or null where there is no driver.
  void* find_real(Row row);
  void set_real(Row row, void* function) {
    real_[static_cast<unsigned>(row)].store(function, std::memory_order_release);
  }

  // The driver's function of that name, or null where this driver has none.
#define CACHESHIM_CUDA_CALL(name) \
  auto name() { return reinterpret_cast<decltype(&::name)>(find_call(Call::name)); }
#include "cuda_hooks/calls.def"
#undef CACHESHIM_CUDA_CALL

 private:
  friend int find_slot(void* function, void* handle);
  void* find_call(Call call);
  void* base();
  // Makes a free slot that of the image at `base`; false where another thread took it first.
  bool take(void* base, void* handle);

  std::atomic<void*> base_{nullptr};  // of the image; the direct slot has none
  std::atomic<void*> real_[static_cast<unsigned>(Row::kCount)] = {};
  std::atomic<void*> calls_[static_cast<unsigned>(Call::kCount)] = {};
};

extern Driver drivers[kSlots];

// The slot of the libcuda image that `function` lies in, taken now if need be; `handle` is what it
// was found by. 0 where it lies in none (another library may have a function of that name), or there
// are more images than slots.
int find_slot(void* function, void* handle);

// The hook of `row` for the driver of `slot`.
void* find_hook(int slot, Row row);

}  // namespace cacheshim::cuda
