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
  std::string mount_path;  // that the store was mounted at last, "" for none yet
};

// Reads the text of a store's format file. Unknown lines are passed over. The other alternative says, for
// a message, why a store with such a file is not to be used.
std::variant<StoreFormat, std::string> parse_store_format(std::string_view text);

}  // namespace cacheshim
