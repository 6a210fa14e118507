// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

// The XML of an S3 server's replies: an error with the code `code`, and a page of ListObjectsV2.
namespace cacheshim::remote {

inline std::string error_xml(std::string_view code) {
  return fmt::format(
      "<?xml version=\"1.0\"?>\n<Error><Code>{}</Code><Message>Why\nnot</Message></Error>", code);
}

inline std::string listing_xml(std::string_view content) {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://x/\">{}</ListBucketResult>",
      content);
}

}  // namespace cacheshim::remote
