// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Declares the part of the CUDA driver API that this library hooks or calls, so that the build does not need the CUDA
// toolkit. The declarations and names match cuda.h of CUDA 13.0; tests/cuda compares them with cuda.h, if it finds one.
// If cuda.h was included before this file, this file uses the types of cuda.h.
#ifndef __cuda_cuda_h__

using cuuint64_t = std::uint64_t;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUcontext = struct CUctx_st*;

// This library only passes values of these types to the driver.
enum CUjit_option : unsigned {};
enum CUlibraryOption : unsigned {};

enum CUresult : unsigned {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_NO_DEVICE = 100,
};

enum CUmoduleLoadingMode : unsigned {
  CU_MODULE_EAGER_LOADING = 1,
  CU_MODULE_LAZY_LOADING = 2,
};

enum CUdriverProcAddressQueryResult : unsigned {
  CU_GET_PROC_ADDRESS_SUCCESS = 0,
  CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
};

#endif

extern "C" {

// Functions that the library hooks (symbols.def).
CUresult cuInit(unsigned int flags);
CUresult cuModuleLoad(CUmodule* module, const char* path);
CUresult cuModuleLoadData(CUmodule* module, const void* image);
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int option_count,
                            CUjit_option* options, void** values);
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image);
CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option* jit_options,
                           void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                           void** values, unsigned int count);
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* jit_options,
                               void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                               void** values, unsigned int count);
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode);
// Version 1 (CUDA 11.3) and version 2 (CUDA 12.0); cuda.h maps the plain name to version 2.
#undef cuGetProcAddress
#undef cuGetProcAddress_v2
CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags);
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status);

// Functions that the hooks call (calls.def).
CUresult cuCtxGetCurrent(CUcontext* context);
CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes);
CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule module);
CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule module);
CUresult cuFuncGetName(const char** name, CUfunction function);
CUresult cuFuncLoad(CUfunction function);
CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary library);
CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary library);
CUresult cuKernelGetName(const char** name, CUkernel kernel);
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel);
}
