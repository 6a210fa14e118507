// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/prefix_swap.h"

#include <cstdlib>
#include <cstring>

namespace cacheshim {

const char* PrefixSwap::restore(const char* path, PathBuffer& out) const {
  const std::string_view text(path);
  if (!starts_with_directory(text, to_)) return path;
  const std::size_t rest = text.size() - to_.size();
  if (from_.size() + rest >= sizeof out.text) return path;
  std::memcpy(out.text, from_.data(), from_.size());
  std::memcpy(out.text + from_.size(), path + to_.size(), rest + 1);
  return out.text;
}

char* PrefixSwap::restore_allocated(char* path) const {
  const std::string_view text(path);
  if (!starts_with_directory(text, to_)) return path;
  const std::size_t rest = text.size() - to_.size();
  if (growth() > 0) {
    char* const larger = static_cast<char*>(std::realloc(path, from_.size() + rest + 1));
    if (larger == nullptr) return path;
    path = larger;
  }
  std::memmove(path + from_.size(), path + to_.size(), rest + 1);
  std::memcpy(path, from_.data(), from_.size());
  return path;
}

}  // namespace cacheshim
