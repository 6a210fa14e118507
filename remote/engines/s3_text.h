// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The text that S3Tier sends and receives: names in URLs, and the XML of replies, which may be hostile. The functions
// are pure and thread-safe. Their time and memory are proportional to the size of the text, which the caller limits.
namespace cacheshim::remote {

// Returns the text in the encoding of Signature Version 4: %XX, in capitals, for each byte that is neither in `kept`
// nor one of RFC 3986's unreserved characters (A-Z a-z 0-9 - . _ ~).
std::string percent_encode(std::string_view text, std::string_view kept = "");

constexpr std::size_t kMostNameBytes = 1024;  // of the name of an S3 object
// Whether the key is UTF-8 text without control characters, of at most kMostNameBytes, and without the segments "", "."
// and "..", which proxies and servers rewrite.
bool is_s3_key(std::string_view key);

// A page of ListObjectsV2.
struct S3Listing {
  std::vector<std::string> names;  // decoded
  std::string next;                // the continuation token; "" if the page is the last one
};
// Returns nothing if the reply is not a well-formed listing. Decodes the names if the reply says that they are encoded
// (encoding-type=url).
std::optional<S3Listing> parse_s3_listing(std::string_view xml);

struct S3Error {
  std::string
      code;  // for example "NoSuchKey"; "" if the text is not an error of S3, but for example HTML
  std::string message;  // may contain entities
};
S3Error parse_s3_error(std::string_view xml);

}  // namespace cacheshim::remote
