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
  std::string mount_path;  // the recorded mount path; "" if there is none
};

// Reads the text of a store's format file. Skips unknown lines. If a store with this file cannot be
// used, returns a message that gives the reason.
std::variant<StoreFormat, std::string> parse_store_format(std::string_view text);

}  // namespace cacheshim
