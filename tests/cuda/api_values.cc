// SPDX-License-Identifier: Apache-2.0
// This file is compiled twice: without cuda.h, and with cuda.h before our declarations. In the second
// case, our declarations must agree with the types and functions of cuda.h.
#ifdef CACHESHIM_TEST_WITH_CUDA_H
#define __CUDA_API_VERSION_INTERNAL  // declares both versions of cuGetProcAddress
#include <cuda.h>
#undef cuMemGetInfo_v2
#define api_values api_values_of_cuda_h
#else
#define api_values api_values_of_ours
#endif

#include "cuda_hooks/driver_api.h"

extern const long api_values[];
const long api_values[] = {
    CUDA_SUCCESS,
    CUDA_ERROR_NO_DEVICE,
    CU_MODULE_EAGER_LOADING,
    CU_MODULE_LAZY_LOADING,
    CU_GET_PROC_ADDRESS_SUCCESS,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    sizeof(CUresult),
    sizeof(CUmoduleLoadingMode),
    sizeof(CUdriverProcAddressQueryResult),
    sizeof(CUjit_option),
    sizeof(CUlibraryOption),
    sizeof(cuuint64_t),
    -1,
};
