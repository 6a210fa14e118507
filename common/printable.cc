// SPDX-License-Identifier: Apache-2.0
#include "common/printable.h"

namespace cacheshim {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr std::size_t kEscapeSize = 4;  // \xNN

struct Range {
  char32_t first;
  char32_t last;
};
// Source: Unicode 15, general categories Cc and Zl/Zp, and property Bidi_Control.
constexpr Range kNotPrintable[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x61C, 0x61C},
                                   {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}};

bool is_printable(char32_t code) {
  for (const Range& range : kNotPrintable) {
    if (code >= range.first && code <= range.last) return false;
  }
  return true;
}

// The properties of a UTF-8 character that its first byte determines; `bytes` is 0 if no character begins with this
// byte.
struct Lead {
  std::size_t bytes;
  char32_t bits;
  char32_t smallest;  // with this number of bytes, a smaller code is an overlong encoding
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, byte, 0};
  if (byte >= 0xC2 && byte < 0xE0) return {2, byte & 0x1Fu, 0x80};
  if (byte >= 0xE0 && byte < 0xF0) return {3, byte & 0x0Fu, 0x800};
  if (byte >= 0xF0 && byte < 0xF5) return {4, byte & 0x07u, 0x10000};
  return {0, 0, 0};
}

bool is_valid(char32_t code, const Lead& lead) {
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  return code >= lead.smallest && code <= 0x10FFFF && !is_surrogate;
}

void write_escape(char byte, char* out) {
  constexpr const char* kHex = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  out[0] = '\\';
  out[1] = 'x';
  out[2] = kHex[value >> 4];
  out[3] = kHex[value & 15];
}

}  // namespace

Character first_character(std::string_view text) {
  constexpr Character kNotUtf8{1, kReplacement, false};
  const char* const at = text.data();
  const Lead lead = lead_of(static_cast<unsigned char>(*at));
  if (lead.bytes == 0 || lead.bytes > text.size()) return kNotUtf8;
  char32_t code = lead.bits;
  for (std::size_t i = 1; i < lead.bytes; ++i) {
    const auto byte = static_cast<unsigned char>(at[i]);
    if ((byte & 0xC0) != 0x80) return kNotUtf8;
    code = (code << 6) | (byte & 0x3Fu);
  }
  if (!is_valid(code, lead)) return kNotUtf8;
  return {lead.bytes, code, is_printable(code)};
}

std::size_t write_printable(std::string_view text, char* out, std::size_t capacity) {
  std::size_t length = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    const Character next = first_character({at, static_cast<std::size_t>(end - at)});
    const std::size_t size = next.is_printable ? next.bytes : kEscapeSize * next.bytes;
    if (size > capacity - length) break;
    for (std::size_t i = 0; i < next.bytes; ++i) {
      if (next.is_printable) {
        out[length + i] = at[i];
      } else {
        write_escape(at[i], out + length + kEscapeSize * i);
      }
    }
    length += size;
    at += next.bytes;
  }
  return length;
}

}  // namespace cacheshim
