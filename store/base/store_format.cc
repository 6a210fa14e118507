// SPDX-License-Identifier: Apache-2.0
#include "store/base/store_format.h"

#include <fmt/core.h>

#include <charconv>

#include "common/names.h"

namespace cacheshim {

std::variant<StoreFormat, std::string> parse_store_format(std::string_view text) {
  constexpr std::string_view kMount = "\nmount ";
  StoreFormat format;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), format.version);
  if (error != std::errc() || format.version < 1) {
    return fmt::format("{}/{} is damaged: it does not begin with a version", kControlName,
                       kStoreFormatFile);
  }
  if (format.version > kStoreFormat) {
    return fmt::format("its format {} is newer than this program's {}: use a newer cacheshim",
                       format.version, kStoreFormat);
  }
  const auto mount = text.find(kMount);
  if (mount != std::string_view::npos) {
    const auto begin = mount + kMount.size();
    format.mount_path = text.substr(begin, text.find('\n', begin) - begin);
  }
  return format;
}

}  // namespace cacheshim
