// SPDX-License-Identifier: Apache-2.0
#include "common/cuda_defaults.h"

#include <fnmatch.h>

#include <cstring>

#include "common/text_scan.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMaxPattern = 256;

bool equals(std::string_view text, const char* other) {
  return text.size() == std::strlen(other) && std::memcmp(text.data(), other, text.size()) == 0;
}

bool matches(std::string_view pattern, const char* program) {
  char text[kMaxPattern];
  if (pattern.empty() || pattern.size() >= sizeof text) return false;
  std::memcpy(text, pattern.data(), pattern.size());
  text[pattern.size()] = '\0';
  return ::fnmatch(text, program, 0) == 0;
}

}  // namespace

bool parse_cuda_policy(std::string_view name, CudaPolicy& out) {
  constexpr struct {
    const char* name;
    CudaPolicy policy;
  } kPolicies[] = {{"off", CudaPolicy::kOff},
                   {"auto", CudaPolicy::kAuto},
                   {"force", CudaPolicy::kForce},
                   {"select", CudaPolicy::kSelect}};
  for (const auto& known : kPolicies) {
    if (!equals(name, known.name)) continue;
    out = known.policy;
    return true;
  }
  return false;
}

CudaDefault find_cuda_default(std::string_view text, const char* program) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const std::string_view pattern = take_until(line, '\t');
    CudaDefault found;
    if (!parse_cuda_policy(take_until(line, '\t'), found.policy)) continue;
    if (!matches(pattern, program)) continue;
    found.match = line;
    return found;
  }
  return {};
}

}  // namespace cacheshim
