// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "learn/file_event.h"

namespace cacheshim::learn {

// Pure. Reads RequestTrace::records(); stops at an incomplete record, and leaves out requests of
// unknown files: at most kMostEvents, of paths of at most kMostDepth components.
inline constexpr std::size_t kMostEvents = 500'000;
inline constexpr int kMostDepth = 64;
std::vector<FileEvent> decode_requests(std::string_view records);

}  // namespace cacheshim::learn
