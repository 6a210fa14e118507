// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/file_tier_layout.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace cacheshim::remote::file_tier {
namespace {

constexpr std::size_t kMostNameBytes = 200;
constexpr std::size_t kPrefixBytes = 160;  // of a longer name

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

}  // namespace

bool is_valid(std::string_view text, std::size_t most_bytes) {
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; };
  return !text.empty() && text.size() <= most_bytes &&
         std::none_of(text.begin(), text.end(), is_control);
}

Place place_of(const std::string& key) {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  const std::string digits = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  std::string name;
  for (const char c : key) {
    if (is_plain(c) && !(c == '.' && name.empty())) {
      name += c;
    } else {
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  if (name.size() > kMostNameBytes) name = name.substr(0, kPrefixBytes) + "~" + digits;
  return {digits.substr(0, 2), std::move(name)};
}

std::string decode(const std::string& name) {
  std::string key;
  for (std::size_t at = 0; at < name.size(); ++at) {
    auto code = static_cast<unsigned char>(name[at]);
    if (code == '%' && at + 2 < name.size()) {
      // Invalid digits give another key, which key_of_file() detects.
      (void)std::from_chars(&name[at + 1], &name[at] + 3, code, 16);
      at += 2;
    }
    key += static_cast<char>(code);
  }
  return key;
}

std::string second_line(std::string_view start, std::string_view mark) {
  const std::size_t begin = mark.size() + kDigits + 1;
  if (!start.starts_with(mark) || start.size() < begin) return {};
  const std::size_t end = start.find('\n', begin);
  return end == std::string_view::npos ? std::string()
                                       : std::string(start.substr(begin, end - begin));
}

}  // namespace cacheshim::remote::file_tier
