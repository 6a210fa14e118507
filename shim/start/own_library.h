// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/routing/router.h"

namespace cacheshim {

// The word of a list, separated by colons or spaces, whose last component is that of `path`; empty
// where there is none.
std::string_view find_word(const char* list, std::string_view path);

// Writes how this library is to be named in another process's LD_PRELOAD: by the word of `preload`
// (our own LD_PRELOAD, which may hold $LIB) that names it, if that is an absolute path, and else by
// where it was loaded from. Returns the length; 0 where it was not preloaded by that, or is lost.
std::size_t name_own_library(const char* preload, PathBuffer& out);

}  // namespace cacheshim
