// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstddef>
#include <initializer_list>
#include <string_view>

namespace cacheshim {

inline constexpr std::size_t kMaxRoutes = 128;
inline constexpr std::size_t kNoRoute = kMaxRoutes;

// Space for one path. It is on the stack, and is not cleared.
struct PathBuffer {
  char text[PATH_MAX];
};

// Joins the parts into `out`; returns the length, or 0 if they do not fit with a final NUL.
std::size_t join_path(PathBuffer& out, std::initializer_list<std::string_view> parts);

struct RoutedPath {
  enum class Kind {
    kForeign,    // outside all routes
    kUnchanged,  // under the mount, not changed; from fall_back(): under a default path
    kRewritten,
  };
  Kind kind = Kind::kForeign;
  const char* path = nullptr;  // the application's own path, or the text of a PathBuffer
  // If rewritten: the lengths of the replaced prefix and of its replacement.
  std::size_t from_length = 0;
  std::size_t to_length = 0;
  // The route whose default path is in the application's path or in fall_back()'s result.
  std::size_t route = kNoRoute;
  bool names_view = false;  // whether the application itself wrote MOUNT/.jobs/…
};

}  // namespace cacheshim
