// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// What [cuda] of the configuration says for each program: the text that the daemon writes into its
// run directory and that cuda_hooks reads when a process starts.
//
// Layout: lines PROGRAM \t POLICY \t MATCH \n. PROGRAM is a pattern of fnmatch(3) for the last
// component of the program's name; the first line that matches counts.
namespace cacheshim {

inline constexpr std::string_view kCudaDefaultsFile = "cuda";
inline constexpr std::size_t kMaxCudaDefaults = 8192;  // bytes of the file
inline constexpr std::size_t kMaxCudaMatch = 512;      // bytes of MATCH

inline constexpr std::string_view kCudaEagerVariable = "CACHESHIM_CUDA_EAGER";
inline constexpr std::string_view kCudaMatchVariable = "CACHESHIM_CUDA_MATCH";
inline constexpr std::string_view kCudaReportVariable = "CACHESHIM_CUDA_REPORT";

enum class CudaPolicy {
  kOff,     // as if the library were not there
  kAuto,    // modules are loaded eagerly, unless the user asks for LAZY
  kForce,   // eagerly, whatever the user asks for
  kSelect,  // lazily, but for the kernels whose names match (experimental)
};

// Sets `out` to what `name` ("off", "auto", "force", "select") stands for; false for anything else.
bool parse_cuda_policy(std::string_view name, CudaPolicy& out);

struct CudaDefault {
  CudaPolicy policy = CudaPolicy::kAuto;
  std::string_view match;  // a POSIX extended regular expression; within the text
};

// What `text` says for `program`, which ends with a NUL; without a matching line, the default.
// Lines that are none are passed over.
CudaDefault find_cuda_default(std::string_view text, const char* program);

}  // namespace cacheshim
