// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace cacheshim {

// When the entries of a job are published; the strictest policy is first.
enum class PublishPolicy {
  kNever,
  kEnd,       // when the job has succeeded
  kComplete,  // as soon as an entry is complete
};

// Parses "never", "end" or "complete"; returns nothing for any other text.
constexpr std::optional<PublishPolicy> parse_publish_policy(std::string_view text) {
  if (text == "never") return PublishPolicy::kNever;
  if (text == "end") return PublishPolicy::kEnd;
  if (text == "complete") return PublishPolicy::kComplete;
  return std::nullopt;
}

constexpr std::string_view to_string(PublishPolicy policy) {
  switch (policy) {
    case PublishPolicy::kNever:
      return "never";
    case PublishPolicy::kEnd:
      return "end";
    case PublishPolicy::kComplete:
      return "complete";
  }
  return "";
}

}  // namespace cacheshim
