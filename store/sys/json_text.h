// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

// Parses JSON from other processes, and writes JSON that contains names that other processes have chosen.
//
// nlohmann::json copies, dumps and destroys a value by recursion, and dump() throws for a string
// that is not UTF-8. Both have crashed the daemon, because file names and requests are arbitrary
// bytes.
namespace cacheshim {

struct JsonLimits {
  std::size_t bytes;
  int depth;  // the maximum nesting of arrays and objects
};
// For files that a daemon has written.
inline constexpr JsonLimits kRecordLimits{std::size_t{16} << 20, 32};

// Returns a discarded value for text that is not JSON, is too long, or is nested too deeply.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits = kRecordLimits);

// Returns the value if it is an integer from `least` to `most`. Throws nlohmann::json::exception for any other value.
// json::get() would drop the fraction of a number, and the upper bits of an integer that is too large; for a number
// like 1e30, its behavior is undefined.
std::int64_t get_integer(const nlohmann::json& value, std::int64_t least, std::int64_t most);
// As get_integer(), for the member `key` of an object; returns `otherwise` if there is no such member.
std::int64_t find_integer(const nlohmann::json& object, const char* key, std::int64_t least,
                          std::int64_t most, std::int64_t otherwise);

// Never throws for the contents of a string: bytes that are not UTF-8 are replaced by U+FFFD. Escapes
// all characters that are not printable, so that the text may be written to a terminal.
std::string dump_json(const nlohmann::ordered_json& json, int indent = -1);

bool is_utf8(std::string_view text);
// Convert bytes to lower-case hexadecimal digits, two per byte, and back. from_hex() returns "" for
// any other text.
std::string to_hex(std::string_view bytes);
std::string from_hex(std::string_view digits);

// Sets `key` in `object` to the name, for display. If the name is not UTF-8, also sets KEY_hex to its bytes in
// hexadecimal digits.
void put_name(nlohmann::ordered_json& object, const std::string& key, const std::string& name);
// Returns the name that put_name() has stored; "" if there is none.
std::string get_name(const nlohmann::json& object, const std::string& key);

}  // namespace cacheshim
