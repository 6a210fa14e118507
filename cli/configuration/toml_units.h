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

// Both read an integer (seconds or bytes), or a string with a unit. Both return nothing if the key is missing. If the
// key has any other value, they report it, and return nothing.
std::optional<std::chrono::seconds> find_duration(TomlReader& reader, std::string_view key);
std::optional<std::uint64_t> find_size(TomlReader& reader, std::string_view key);

}  // namespace cacheshim::cli
