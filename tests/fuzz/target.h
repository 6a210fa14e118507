// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

// A fuzz target: the function that libFuzzer, or replay.cc, calls with each input. It must behave the same for the same
// input. A finding is a crash, a report of a sanitizer, or an input that takes too long.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace cacheshim::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {static_cast<const char*>(static_cast<const void*>(data)), size};
}

// Aborts the program if `holds` is false. For invariants that no sanitizer checks.
inline void require(bool holds) {
  if (!holds) std::abort();
}

// Removes the text before the next `delimiter`, and the delimiter, from `rest`. Returns the text.
inline std::string take_until(std::string_view& rest, char delimiter) {
  const std::size_t end = rest.find(delimiter);
  std::string part(rest.substr(0, end));
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return part;
}

// A function that reads an input, and the byte that selects it.
struct Reader {
  char selector;
  void (*read)(std::string_view text);
};

// Passes the input without its first byte to the reader that this byte selects. Does nothing if no reader matches.
inline void read_selected(std::initializer_list<Reader> readers, const std::uint8_t* data, std::size_t size) {
  const std::string_view input = text_of(data, size);
  for (const Reader& reader : readers) {
    if (input.starts_with(reader.selector)) reader.read(input.substr(1));
  }
}

// Reads every byte of `text`, so that AddressSanitizer reports a view that is out of bounds.
inline void touch(std::string_view text) {
  volatile unsigned sum = 0;
  for (const char c : text) sum = sum + static_cast<unsigned char>(c);
}

}  // namespace cacheshim::fuzz
