// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

// Makes text printable: names of files and jobs, and replies of daemons, may come from other users. A printable text
// cannot control a terminal, cannot end a line, and cannot change the order in which a line's characters are shown.
namespace cacheshim {

struct Character {
  std::size_t bytes;  // at least 1
  char32_t code;      // U+FFFD for a byte that is not UTF-8
  bool is_printable;  // false for control and bidirectional formatting characters, line separators
                      // and bytes that are not UTF-8
};
// Returns the first character. Requires: `text` is not empty.
Character first_character(std::string_view text);

// Writes `text` to `out`, with \xNN for each byte of a character that is not printable. Stops before
// the first character that does not fit. Returns the length. Async-signal-safe.
std::size_t write_printable(std::string_view text, char* out, std::size_t capacity);

}  // namespace cacheshim
