// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <variant>

namespace cacheshim {

inline constexpr int kStoreFormat = 1;
inline constexpr const char* kStoreFormatFile = "format";  // in STORE/.cacheshim

struct StoreFormat {
  int version = kStoreFormat;
  std::string mount_path;  // at which the store was last mounted, "" if there is none yet
};

// Reads the text of a store's format file. Skips unknown lines. The other alternative is a message
// why a store with such a file cannot be used.
std::variant<StoreFormat, std::string> parse_store_format(std::string_view text);

}  // namespace cacheshim
