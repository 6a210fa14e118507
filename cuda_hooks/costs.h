// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_hooks/driver.h"

// What loading costs, counted where CACHESHIM_CUDA_REPORT=1 asks for it and said in one line when
// the process ends.
namespace cacheshim::cuda {

// Around one call that loads, and what is preloaded after it. Does nothing where nobody asked.
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
  std::size_t free_before_ = 0;  // bytes of device memory; 0: not known
};

// The driver of this process was initialised, and said how it loads.
void note_driver(bool is_eager);
// `count` kernels were loaded because their names match.
void note_preloaded(unsigned count);

}  // namespace cacheshim::cuda
