// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/routing/router.h"

// Converts paths that libc returns into the application's own paths. libc's argument began with the
// prefix that the router inserted, so libc's result begins with that prefix too.
namespace cacheshim {

class PrefixSwap {
 public:
  // `application_path`: the application's argument. Both arguments must outlive this object.
  PrefixSwap(const char* application_path, const RoutedPath& routed)
      : from_(application_path, routed.from_length), to_(routed.path, routed.to_length) {}

  // The number of bytes that the conversion adds to a path; negative if it shortens the path.
  std::ptrdiff_t growth() const {
    return static_cast<std::ptrdiff_t>(from_.size()) - static_cast<std::ptrdiff_t>(to_.size());
  }
  // Writes the application's path for `path` into `out` and returns it. Returns `path` itself if it is
  // not under the prefix, or if the result does not fit.
  const char* restore(const char* path, PathBuffer& out) const;
  // As restore(), for a string from malloc. May reallocate the string; returns it. The application
  // owns the memory.
  char* restore_allocated(char* path) const;

 private:
  std::string_view from_;
  std::string_view to_;
};

}  // namespace cacheshim
