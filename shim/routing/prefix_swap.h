// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/routing/router.h"

// Turns paths that libc hands back into the application's own: what it was given began with the
// prefix that the router put in, and what it returns begins with it too.
namespace cacheshim {

class PrefixSwap {
 public:
  // `application_path`: what the application gave. Both must outlive this.
  PrefixSwap(const char* application_path, const RoutedPath& routed)
      : from_(application_path, routed.from_length), to_(routed.path, routed.to_length) {}

  // By how much paths get longer (or shorter) when they are turned back.
  std::ptrdiff_t growth() const {
    return static_cast<std::ptrdiff_t>(from_.size()) - static_cast<std::ptrdiff_t>(to_.size());
  }
  // Writes the application's path for `path` into `out`; returns `path` where it is not under the
  // prefix or does not fit.
  const char* restore(const char* path, PathBuffer& out) const;
  // The same for a string of malloc's, which it may replace, as the function that made it has
  // promised the application that memory.
  char* restore_allocated(char* path) const;

 private:
  std::string_view from_;
  std::string_view to_;
};

}  // namespace cacheshim
