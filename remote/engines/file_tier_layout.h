// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

// The names and the headers of the files in FileTier's directory; file_tier.h describes them. The functions are pure
// and thread-safe.
namespace cacheshim::remote::file_tier {

constexpr std::size_t kMostKeyBytes = 1024;
constexpr std::string_view kObjectMark = "cacheshim object 1 ";
constexpr std::string_view kLeaseMark = "cacheshim lease 1 ";
constexpr std::size_t kDigits = 16;  // of the number that follows each mark

// Whether the text is not empty, has at most `most_bytes`, and contains no control characters.
bool is_valid(std::string_view text, std::size_t most_bytes);

// Where the files of a key are: objects/SHARD/NAME and leases/SHARD/NAME/.
struct Place {
  std::string shard;
  std::string name;
};
Place place_of(const std::string& key);

// Returns the key of a NAME that contains the whole key. For other names, returns a text for which place_of() returns
// another name.
std::string decode(const std::string& name);

// Returns the second line of an object's or a lease's file: the key, or the owner. "" if there is none.
std::string second_line(std::string_view start, std::string_view mark);

// Parses the whole text as a number. Returns false if the text is not a number; `number` may then have changed.
template <class Number>
bool parse(std::string_view text, Number& number, int base = 10) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base);
  return error == std::errc() && rest == end;
}

}  // namespace cacheshim::remote::file_tier
