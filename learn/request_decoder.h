// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "learn/file_event.h"

namespace cacheshim::learn {

// Decodes RequestTrace::records(). Stops at an incomplete record, and omits requests on unknown
// files. Returns at most kMostEvents events, for paths of at most kMostDepth components. Pure.
inline constexpr std::size_t kMostEvents = 500'000;
inline constexpr int kMostDepth = 64;
std::vector<FileEvent> decode_requests(std::string_view records);

}  // namespace cacheshim::learn
