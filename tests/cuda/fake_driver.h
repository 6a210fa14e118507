// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_hooks/driver_api.h"

// The declarations of the CUDA driver API that only the tests use. Source: cuda.h, as for
// cuda_hooks/driver_api.h.
using CUstream = struct CUstream_st*;
using CUdeviceptr = unsigned long long;
using CUdevice = int;
inline constexpr CUresult kErrorInvalidContext{201};
inline constexpr CUresult kErrorNotFound{500};
inline constexpr CUresult kErrorNotInitialized{3};

// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
inline constexpr cuuint64_t kPerThreadStream = 2;

extern "C" {
CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device);
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name);
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra);
CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                             void** parameters, void** extra);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream);

// These two functions do not exist in a real driver. fake_wait_for_launches() waits until at least
// `launches` launches have either succeeded or begun to load their kernel.
void fake_wait_for_launches(int launches);
// Waits for the end of the spin kernel. Returns 1 if the timeout ended the kernel, 0 if a copy did.
int fake_spin_timed_out();
}
