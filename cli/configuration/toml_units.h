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

// Read an integer, in seconds or bytes, or a string with a unit. Return nothing if the key is missing. Report any other
// value, and return nothing.
std::optional<std::chrono::seconds> find_duration(TomlReader& reader, std::string_view key);
std::optional<std::uint64_t> find_size(TomlReader& reader, std::string_view key);

}  // namespace cacheshim::cli
