// SPDX-License-Identifier: Apache-2.0
// Scans text without allocating and without throwing, for the preloaded library too: substr() would bring
// std::__throw_out_of_range into it. Thread-safe.
#pragma once

#include <cstring>
#include <string_view>

namespace cacheshim {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes the part before `delimiter`, and the delimiter itself, from `text`; returns the part. Without a delimiter,
// the part is the whole text.
inline std::string_view take_until(std::string_view& text, char delimiter) {
  const void* const at = text.empty() ? nullptr : std::memchr(text.data(), delimiter, text.size());
  const std::size_t size =
      at == nullptr ? text.size()
                    : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
  const std::string_view part(text.data(), size);
  const std::size_t skip = at == nullptr ? size : size + 1;
  text = {text.data() + skip, text.size() - skip};
  return part;
}

}  // namespace cacheshim
