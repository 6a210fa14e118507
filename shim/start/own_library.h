// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/routing/router.h"

namespace cacheshim {

// Returns the first word of `list` with the same last component as `path`; empty if there is none.
// Colons and spaces separate the words.
std::string_view find_word(const char* list, std::string_view path);

// Writes the name of this library for another process's LD_PRELOAD. `preload` is this process's
// LD_PRELOAD. If its word for this library is an absolute path, which may contain $LIB, writes that
// word, otherwise the path from which the library was loaded. Returns the length, or 0 if `preload`
// does not name this library or the path is unknown.
std::size_t name_own_library(const char* preload, PathBuffer& out);

}  // namespace cacheshim
