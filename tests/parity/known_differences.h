// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace cacheshim::parity {

// Cases in which a view behaves differently from a plain directory, and why. docs/semantics.md
// names each pattern. If one of these cases no longer differs, the parity program reports it.
struct KnownDifference {
  const char* pattern;  // fnmatch(3) pattern of case names
  const char* reason;
};

std::span<const KnownDifference> known_differences();

// Returns null for a case that must not differ.
const char* find_known_difference(const std::string& case_name);

}  // namespace cacheshim::parity
