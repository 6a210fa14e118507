// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/printable.h"

namespace cacheshim {

// Returns the text that write_printable() writes.
std::string printable(std::string_view text);
// As printable(), but leaves newlines unchanged. Use it only for text in which every newline intentionally ends a line.
std::string printable_lines(std::string_view text);
// Returns the JSON `text` with each character that is not printable, except newlines, replaced by
// \uNNNN, and each byte that is not UTF-8 replaced by U+FFFD. The values of valid JSON do not change.
// Requires: outside its strings, the only white space of `text` is spaces and newlines.
std::string printable_json(std::string text);

}  // namespace cacheshim
