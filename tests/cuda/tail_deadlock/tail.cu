// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/tail_deadlock/tail.h"

// The tail kernel is in a separate file, so that no other kernel's launch loads its module.
__global__ void tail_kernel(unsigned* out) { *out = kTailResult; }

cudaError_t launch_tail(unsigned* out, cudaStream_t stream) {
  tail_kernel<<<1, 1, 0, stream>>>(out);
  return cudaGetLastError();
}

cudaError_t touch_tail() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, tail_kernel);
}
