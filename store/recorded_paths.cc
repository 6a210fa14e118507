// SPDX-License-Identifier: Apache-2.0
#include "store/recorded_paths.h"

#include <nlohmann/json.hpp>

#include "store/sys.h"

namespace cacheshim {
namespace {

bool is_outside(const nlohmann::json& value, const std::string& folder) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return text.starts_with('/') && !text.starts_with(folder + "/");
  }
  for (const auto& part : value) {
    if ((part.is_structured() || part.is_string()) && is_outside(part, folder)) return true;
  }
  return false;
}

}  // namespace

Result<bool> names_path_outside(int fd, const std::string& folder) {
  CACHESHIM_TRY(text, sys::read_all(fd));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_structured() && is_outside(json, folder);
}

}  // namespace cacheshim
