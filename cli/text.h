// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

// Text for people, on stdout.
namespace cacheshim::cli {

// "name    value" lines, the values under each other.
void print_pairs(const std::vector<std::pair<std::string, std::string>>& pairs);

// Columns of equal width, two blanks between; the last one is not filled up.
void print_table(const std::vector<std::vector<std::string>>& rows);
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// A member of an object, or nothing said where it is missing or of another type, as null.
std::string text_of(const nlohmann::json& object, const char* key);
std::uint64_t count_of(const nlohmann::json& object, const char* key);

// How often an entry was rejected, by an object as in `status` ("rejected").
std::string rejection_text(const nlohmann::json& rejected);

// Seconds since 1970 in local time, "2025-01-31 12:00:05"; "-" for 0.
std::string format_time(std::int64_t seconds);

}  // namespace cacheshim::cli
