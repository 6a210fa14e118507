// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cacheshim {
class TomlReader;
}

namespace cacheshim::cli {

// Read an integer, in seconds or bytes, or a string with a unit. Return nothing for a missing key, and for any other
// value, which they also report.
std::optional<std::chrono::seconds> find_duration(TomlReader& reader, std::string_view key);
std::optional<std::uint64_t> find_size(TomlReader& reader, std::string_view key);

}  // namespace cacheshim::cli
