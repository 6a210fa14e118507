// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace cacheshim {

// Removes the first component of a relative path, and the '/' after it, and returns the component. Unlike substr(),
// cannot throw: the preloaded library has no exceptions.
inline std::string_view take_component(std::string_view& path) {
  const std::size_t slash = path.find('/');
  const bool is_last = slash == std::string_view::npos;
  const std::string_view component(path.data(), is_last ? path.size() : slash);
  path.remove_prefix(is_last ? path.size() : slash + 1);
  return component;
}

}  // namespace cacheshim
