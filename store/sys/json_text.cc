// SPDX-License-Identifier: Apache-2.0
#include "store/sys/json_text.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "common/printable_text.h"

namespace cacheshim {
namespace {

int digit_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

std::string string_in(const nlohmann::json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

// The parser itself does not recurse. During parsing, its callback drops values that are nested too deeply, so the
// result is never nested more deeply than the limit.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits) {
  const nlohmann::json nothing(nlohmann::json::value_t::discarded);
  if (text.size() > limits.bytes) return nothing;
  bool is_too_deep = false;
  const auto keep = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    is_too_deep = is_too_deep || depth > limits.depth;
    return !is_too_deep;
  };
  auto json = nlohmann::json::parse(text, keep, /*allow_exceptions=*/false);
  return is_too_deep ? nothing : json;
}

std::int64_t get_integer(const nlohmann::json& value, std::int64_t least, std::int64_t most) {
  const bool is_too_large = value.is_number_unsigned() &&
                            value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (value.is_number_integer() && !is_too_large) {
    const auto integer = value.get<std::int64_t>();
    if (integer >= least && integer <= most) return integer;
  }
  throw nlohmann::json::out_of_range::create(406, "not an integer in the range of its key", &value);
}

std::int64_t find_integer(const nlohmann::json& object, const char* key, std::int64_t least,
                          std::int64_t most, std::int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() ? get_integer(*found, least, most) : otherwise;
}

std::string dump_json(const nlohmann::ordered_json& json, int indent) {
  return printable_json(
      json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

bool is_utf8(std::string_view text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    digits += kDigits[byte >> 4U];
    digits += kDigits[byte & 15U];
  }
  return digits;
}

std::string from_hex(std::string_view digits) {
  std::string bytes;
  if (digits.size() % 2 != 0) return bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const int high = digit_value(digits[i]);
    const int low = digit_value(digits[i + 1]);
    if (high < 0 || low < 0) return "";
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

void put_name(nlohmann::ordered_json& object, const std::string& key, const std::string& name) {
  object[key] = name;
  if (!is_utf8(name)) object[key + "_hex"] = to_hex(name);
}

std::string get_name(const nlohmann::json& object, const std::string& key) {
  if (!object.is_object()) return "";
  const std::string name = from_hex(string_in(object, key + "_hex"));
  return name.empty() ? string_in(object, key) : name;
}

}  // namespace cacheshim
