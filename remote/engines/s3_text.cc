// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/s3_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <functional>
#include <utility>

#include "common/printable.h"

namespace cacheshim::remote {
namespace {

constexpr std::size_t kMostDepth = 8;  // of elements; the replies of S3 have at most 4 levels
constexpr std::string_view kXmlSpace = " \t\r\n";

bool is_one_of(char c, std::string_view characters) {
  return characters.find(c) != std::string_view::npos;
}

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_blank(std::string_view text) { return text.find_first_not_of(kXmlSpace) == text.npos; }

bool is_text(std::string_view text) {
  while (!text.empty()) {
    const Character next = first_character(text);
    const bool is_control = next.code < 0x20 || (next.code >= 0x7F && next.code < 0xA0);
    const bool is_utf8 = next.code < 0x80 || next.bytes > 1;
    if (is_control || !is_utf8) return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

// In a listing with encoding-type=url, AWS, MinIO and SeaweedFS write a space as '+'.
std::optional<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) return std::nullopt;
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

void append_utf8(std::uint32_t code, std::string& text) {
  const auto append = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto append_tail = [&](unsigned shift) { append(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return append(code);
  if (code < 0x800) {
    append(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    append(0xE0 | code >> 12);
    append_tail(6);
  } else {
    append(0xF0 | code >> 18);
    append_tail(12);
    append_tail(6);
  }
  append_tail(0);
}

// Appends the character of the entity `name`, the text between '&' and ';'. Returns false if there is no such entity.
bool append_entity(std::string_view name, std::string& text) {
  constexpr std::array<std::pair<std::string_view, char>, 5> kNamed{
      {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};
  for (const auto& [known, character] : kNamed) {
    if (name != known) continue;
    text += character;
    return true;
  }
  if (!name.starts_with('#')) return false;
  const bool is_hex = name.starts_with("#x");
  name.remove_prefix(is_hex ? 2 : 1);
  std::uint32_t code = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, code, is_hex ? 16 : 10);
  if (error != std::errc() || rest != end || code > 0x10FFFF) return false;
  append_utf8(code, text);
  return true;
}

std::optional<std::string> decode_entities(std::string_view text) {
  std::string decoded;
  for (;;) {
    const std::size_t start = text.find('&');
    decoded += text.substr(0, start);
    if (start == text.npos) return decoded;
    text.remove_prefix(start + 1);
    const std::size_t end = text.find(';');
    if (end == text.npos || !append_entity(text.substr(0, end), decoded)) return std::nullopt;
    text.remove_prefix(end + 1);
  }
}

// Reads documents of the form that S3 servers send: an XML declaration, then elements, attributes and text. Rejects
// comments, CDATA sections, document types and mixed content. Does not check attributes.
// Source: "Extensible Markup Language (XML) 1.0".
class XmlReader {
 public:
  // Gets the path of an element, for example "/Error/Code", and its text, which may contain entities. Returns false to
  // reject the document.
  using Visit = std::function<bool(std::string_view path, std::string_view text)>;
  explicit XmlReader(Visit visit) : visit_(std::move(visit)) {}

  // Calls `visit` for each element without children, in order. Returns false if the document is rejected.
  bool read(std::string_view xml);

 private:
  bool open(std::string_view tag);
  bool close(std::string_view name, std::string_view text);

  Visit visit_;
  std::string path_;  // of the innermost open element
  std::size_t depth_ = 0;
  bool has_root_ = false;
  bool is_leaf_ = false;  // whether the innermost open element has had no children yet
};

bool XmlReader::read(std::string_view xml) {
  if (xml.starts_with("<?xml ")) {
    const std::size_t end = xml.find("?>");
    if (end == xml.npos) return false;
    xml.remove_prefix(end + 2);
  }
  for (;;) {
    const std::size_t start = xml.find('<');
    const std::string_view text = xml.substr(0, start);
    if (start == xml.npos) return has_root_ && depth_ == 0 && is_blank(text);
    const std::size_t end = xml.find('>', start);
    if (end == xml.npos) return false;
    const std::string_view tag = xml.substr(start + 1, end - start - 1);
    xml.remove_prefix(end + 1);
    const bool is_accepted =
        tag.starts_with('/') ? close(tag.substr(1), text) : is_blank(text) && open(tag);
    if (!is_accepted) return false;
  }
}

bool XmlReader::open(std::string_view tag) {
  if (depth_ == kMostDepth || (has_root_ && depth_ == 0)) return false;
  const std::string_view name = tag.substr(0, tag.find_first_of(" \t\r\n/"));
  const bool is_name = std::ranges::all_of(
      name, [](char c) { return is_letter_or_digit(c) || is_one_of(c, "-._:"); });
  if (name.empty() || !is_name) return false;  // "!..." and "?..." are not names either
  path_.append("/").append(name);
  ++depth_;
  has_root_ = is_leaf_ = true;
  return !tag.ends_with('/') || close(name, "");
}

bool XmlReader::close(std::string_view name, std::string_view text) {
  const std::size_t parent = path_.rfind('/');
  if (depth_ == 0 || std::string_view(path_).substr(parent + 1) != name) return false;
  if (is_leaf_ ? !visit_(path_, text) : !is_blank(text)) return false;
  path_.resize(parent);
  --depth_;
  is_leaf_ = false;
  return true;
}

}  // namespace

std::string percent_encode(std::string_view text, std::string_view kept) {
  std::string encoded;
  for (const char c : text) {
    if (is_letter_or_digit(c) || is_one_of(c, "-._~") || is_one_of(c, kept)) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

bool is_s3_key(std::string_view key) {
  for (std::size_t start = 0; start <= key.size();) {
    const std::size_t end = std::min(key.find('/', start), key.size());
    const std::string_view segment = key.substr(start, end - start);
    if (segment.empty() || segment == "." || segment == "..") return false;
    start = end + 1;
  }
  return key.size() <= kMostNameBytes && is_text(key);
}

std::optional<S3Listing> parse_s3_listing(std::string_view xml) {
  S3Listing listing;
  std::string is_truncated;  // joined if the element is repeated: then neither "true" nor "false"
  bool is_encoded = false;
  XmlReader reader([&](std::string_view path, std::string_view text) {
    auto value = decode_entities(text);
    if (!value) return false;
    if (path == "/ListBucketResult/IsTruncated") is_truncated += *value;
    if (path == "/ListBucketResult/EncodingType") is_encoded = *value == "url";
    if (path == "/ListBucketResult/NextContinuationToken")
      listing.next = *std::move(value);
    else if (path == "/ListBucketResult/Contents/Key")
      listing.names.push_back(*std::move(value));
    return true;
  });
  if (!reader.read(xml) || (is_truncated != "true" && is_truncated != "false")) return std::nullopt;
  if (is_truncated == "false") listing.next.clear();
  if (is_truncated == "true" && listing.next.empty()) return std::nullopt;
  if (!is_encoded) return listing;
  for (std::string& name : listing.names) {
    auto decoded = percent_decode(name);
    if (!decoded) return std::nullopt;
    name = *std::move(decoded);
  }
  return listing;
}

S3Error parse_s3_error(std::string_view xml) {
  S3Error error;
  XmlReader reader([&](std::string_view path, std::string_view text) {
    if (path == "/Error/Code") error.code = text;
    if (path == "/Error/Message") error.message = text;
    return true;
  });
  return reader.read(xml) ? error : S3Error();
}

}  // namespace cacheshim::remote
