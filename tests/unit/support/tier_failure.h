// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "remote/engines/remote_tier.h"

namespace cacheshim::remote {

// The TierError of a call, as text, and how long the call took.
struct Failure {
  std::string kind;  // "none" if nothing was thrown
  std::string message;
  std::chrono::milliseconds after;
};

// Calls `action` once. Exceptions other than TierError pass through.
inline Failure failure_of(const std::function<void()>& action) {
  using Clock = std::chrono::steady_clock;
  using Kind = TierError::Kind;
  const auto start = Clock::now();
  const auto after = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  };
  try {
    action();
  } catch (const TierError& error) {
    const std::map<Kind, std::string> names{
        {Kind::kUnavailable, "unavailable"}, {Kind::kFull, "full"}, {Kind::kRefused, "refused"}};
    return {names.at(error.kind()), error.what(), after()};
  }
  return {"none", "", after()};
}

// Returns Failure::kind.
inline std::string kind_of(const std::function<void()>& action) { return failure_of(action).kind; }

}  // namespace cacheshim::remote
