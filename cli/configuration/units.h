// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cacheshim::cli {

// Parses "90", "90s", "10m", "2h", "7d" or "1w". Returns nothing for any other text, and for values
// out of range.
std::optional<std::chrono::seconds> parse_duration(std::string_view text);

// Parses what parse_duration() accepts, and also fractions ("0.5", "1.5m") and milliseconds
// ("200ms"). Returns nothing for any other text, and for more than 10 years.
std::optional<std::chrono::milliseconds> parse_timeout(std::string_view text);

// Returns why `text` is not a timeout, for CLI::Option::check(); "" if it is one.
std::string timeout_problem(const std::string& text);

// Parses a size in bytes: "4096", or with a unit K, M, G, T or P in powers of 1024, such as "10K" or "2T". Returns
// nothing for any other text, and for values out of range.
std::optional<std::uint64_t> parse_size(std::string_view text);

// Formats with at most two units: "12 s", "3 min 5 s", "2 h", "7 d 1 h".
std::string format_duration(std::chrono::seconds duration);

// Formats in powers of 1024: "512 B", "1.5 KiB".
std::string format_size(std::uint64_t bytes);

// Returns a count with its unit: "1 file", "2 files".
std::string format_count(std::uint64_t count, std::string_view singular, std::string_view plural);

}  // namespace cacheshim::cli
