// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "shim/routing/router.h"

// Converts the kernel's path of an object in the view, MOUNT/.jobs/JOB/NAME/x, to the spelling that
// the process last used for this cache: DEFAULT/x (DEFAULT is the cache's default path),
// MOUNT/NAME/x, or the kernel's path unchanged.
//
// getcwd uses the spelling of the path that was last passed to chdir, in this process or (after a
// fork) in its parent. After an exec or an fchdir, getcwd returns PWD if PWD names the working
// directory, as pwd(1) does. Otherwise getcwd uses the default path that the parent has
// recorded in CACHESHIM_DIRECTORY. If this variable names no default path of the cache, getcwd uses
// the spelling that the process last used for the cache.
namespace cacheshim::path_spelling {

// note_use() records the spelling of a path that the application used; note_directory() records the
// spelling of the path that the application passed to chdir. `routed` is the path's route.
// note_use() ignores foreign paths; after note_directory() of a foreign path, the spelling is unknown.
void note_use(const RoutedPath& routed);
void note_directory(const RoutedPath& routed);

// Returns the value of CACHESHIM_DIRECTORY for a program that this process starts: a default path, an
// empty string to remove the variable, or null to leave it unchanged. The text remains valid.
const char* directory_for_children();

// Writes the application's name of the object to `out` and returns it. Returns `kernel_name` itself
// if it is not in the caller's view, if the application uses this spelling, or if the name does not
// fit. May change errno.
const char* name(const char* kernel_name, PathBuffer& out);
// As name(), for the result of a call that took a path: uses the spelling of that path. `routed` is
// the path's route.
const char* name_as(const char* kernel_name, const RoutedPath& routed, PathBuffer& out);
// As name(), for the working directory: uses the spelling that getcwd uses (see above).
const char* working_directory(const char* kernel_name, PathBuffer& out);

}  // namespace cacheshim::path_spelling
