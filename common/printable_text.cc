// SPDX-License-Identifier: Apache-2.0
#include "common/printable_text.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace cacheshim {
namespace {

bool is_plain(char c) { return (c >= ' ' && c <= '~') || c == '\n'; }

void append_json(std::string_view bytes, const Character& character, std::string& out) {
  constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";
  if (character.is_printable || bytes == "\n") {
    out += bytes;
  } else if (bytes.size() == 1 && static_cast<unsigned char>(bytes.front()) >= 0x80) {
    out += kReplacementText;
  } else {  // all these characters have at most four hexadecimal digits
    std::array<char, 16> escape{};
    (void)std::snprintf(escape.data(), escape.size(), "\\u%04x",
                        static_cast<unsigned>(character.code));
    out += escape.data();
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out(text.size() * 4, '\0');
  out.resize(write_printable(text, out.data(), out.size()));
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += printable(text.substr(0, end));
    if (end == text.size()) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

std::string printable_json(std::string text) {
  if (std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (std::string_view rest = text; !rest.empty();) {
    const Character next = first_character(rest);
    append_json(rest.substr(0, next.bytes), next, out);
    rest.remove_prefix(next.bytes);
  }
  return out;
}

}  // namespace cacheshim
