// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "common/printable.h"

namespace cacheshim {

// Returns the text that write_printable() writes.
std::string printable(std::string_view text);
// As printable(), but leaves newlines unchanged. For text whose lines are made printable already.
std::string printable_lines(std::string_view text);
// Returns JSON text with \uNNNN for each character that is not printable, except newlines, and
// U+FFFD for each byte that is not UTF-8. The values of valid JSON do not change.
std::string printable_json(std::string text);

}  // namespace cacheshim
