// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

inline constexpr unsigned kTailResult = 42;

// Launches the tail kernel, which writes kTailResult to `out` (device memory).
cudaError_t launch_tail(unsigned* out, cudaStream_t stream);

// Loads the tail kernel, as an application would to avoid the deadlock.
cudaError_t touch_tail();
