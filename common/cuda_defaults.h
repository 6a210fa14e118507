// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// The per-program settings of the configuration's [cuda] section, as text. The daemon writes the
// text into its run directory, and cuda_hooks reads it when a process starts.
//
// Layout: lines PROGRAM \t POLICY \t MATCH \n. PROGRAM is a pattern of fnmatch(3) for the last
// component of the program's name; the first matching line applies.
namespace cacheshim {

inline constexpr std::string_view kCudaDefaultsFile = "cuda";
inline constexpr std::size_t kMaxCudaDefaults = 8192;  // the maximum size of the file, in bytes
inline constexpr std::size_t kMaxCudaMatch = 512;      // the maximum size of MATCH, in bytes

inline constexpr std::string_view kCudaEagerVariable = "CACHESHIM_CUDA_EAGER";
inline constexpr std::string_view kCudaMatchVariable = "CACHESHIM_CUDA_MATCH";
inline constexpr std::string_view kCudaReportVariable = "CACHESHIM_CUDA_REPORT";

enum class CudaPolicy {
  kOff,     // the library only removes the setting that it made in an ancestor process
  kAuto,    // the driver loads modules eagerly, unless the user sets CUDA_MODULE_LOADING=LAZY
  kForce,   // the driver loads modules eagerly, whatever the user sets
  // Experimental: the driver loads kernels lazily, except those whose names match. If the user sets
  // CUDA_MODULE_LOADING=EAGER, the library keeps this value.
  kSelect,
};

// Stores the policy named "off", "auto", "force" or "select" in `out`; returns false for any other
// name.
bool parse_cuda_policy(std::string_view name, CudaPolicy& out);

struct CudaDefault {
  CudaPolicy policy = CudaPolicy::kAuto;
  // Only for kSelect: a POSIX extended regular expression for the names of kernels. Points into the text that
  // find_cuda_default() was called with.
  std::string_view match;
};

// Returns the setting that `text` has for `program`, or the default if no line matches. Skips
// malformed lines. `program` ends with a NUL.
CudaDefault find_cuda_default(std::string_view text, const char* program);

}  // namespace cacheshim
