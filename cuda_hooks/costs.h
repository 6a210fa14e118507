// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_hooks/driver.h"

// If CACHESHIM_CUDA_REPORT is set and is not 0, measures the time and memory that loading takes,
// and prints one line when a process that has initialized the driver exits. Does neither if the
// policy is `off`.
namespace cacheshim::cuda {

// Measures one call that loads modules, and the preloading after the call. Does nothing if no report
// is requested.
class CostMeter {
 public:
  explicit CostMeter(Driver& driver);
  ~CostMeter();
  CostMeter(const CostMeter&) = delete;
  CostMeter& operator=(const CostMeter&) = delete;

  void count_module(CUmodule module);
  void count_library(CUlibrary library);

 private:
  Driver& driver_;
  bool on_;
  std::uint64_t begin_ns_ = 0;
  std::size_t free_before_ = 0;  // free bytes of device memory; 0 if unknown
};

// Records that this process has initialized the driver, and the driver's loading mode.
void note_driver(bool is_eager);
// Records that the policy `select` has loaded `count` kernels, whose names match its pattern.
void note_preloaded(unsigned count);

}  // namespace cacheshim::cuda
