// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/tail_deadlock/tail.h"

// A separate file, so that nothing else loads its module.
__global__ void tail_kernel(unsigned* out) { *out = kTailResult; }

cudaError_t launch_tail(unsigned* out, cudaStream_t stream) {
  tail_kernel<<<1, 1, 0, stream>>>(out);
  return cudaGetLastError();
}

cudaError_t touch_tail() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, tail_kernel);
}
