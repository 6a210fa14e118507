// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace cacheshim::parity {

// Cases in which a view does not do as a plain directory does, and why. docs/semantics.md names
// each of the patterns; one that agrees again is reported, so that this list cannot grow old.
struct KnownDifference {
  const char* pattern;  // fnmatch(3), of case names
  const char* reason;
};

std::span<const KnownDifference> known_differences();

// Null for a case that must not differ.
const char* find_known_difference(const std::string& case_name);

}  // namespace cacheshim::parity
