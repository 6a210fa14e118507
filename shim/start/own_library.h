// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/routing/router.h"

namespace cacheshim {

// Finds the word of a list, separated by colons or spaces, whose last component equals that of
// `path`; empty if there is none.
std::string_view find_word(const char* list, std::string_view path);

// Writes the name of this library for another process's LD_PRELOAD: the word of `preload` (our own
// LD_PRELOAD, which may contain $LIB) that names it, if that is an absolute path, and otherwise the
// path that it was loaded from. Returns the length; 0 if `preload` does not name it, or if its path
// is lost.
std::size_t name_own_library(const char* preload, PathBuffer& out);

}  // namespace cacheshim
