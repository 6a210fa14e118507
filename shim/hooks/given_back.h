// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "shim/routing/router.h"

// Converts the kernel's names of objects in the view into names that the application uses:
// MOUNT/.jobs/JOB/NAME/x becomes DEFAULT/x for a process that uses this default path, and otherwise
// MOUNT/NAME/x. A process that uses several spellings gets the last one.
//
// The working directory has the name that was given to chdir. A process that inherited it uses PWD
// if that names the same directory, as pwd(1) does. Otherwise it uses the default path that the
// caller of chdir has noted in CACHESHIM_FOLDER.
namespace cacheshim::given_back {

// note_use() notes that the application used a path that the router changed to `routed`;
// note_directory() that it passed the path to chdir. A foreign path does not change the noted use.
void note_use(const RoutedPath& routed);
void note_directory(const RoutedPath& routed);

// Returns the value of CACHESHIM_FOLDER for a program that this process starts: a default path, an
// empty string for none, or null if the variable stays unchanged. The text remains valid.
const char* directory_for_children();

// These functions return `kernel_name` itself if it is not in the caller's view, and otherwise a
// name in `out`. May change errno.
const char* name(const char* kernel_name, PathBuffer& out);
// As name(), for the result of a call that got a path: writes the name in the same spelling as that
// path.
const char* name_as(const char* kernel_name, const RoutedPath& routed, PathBuffer& out);
const char* working_directory(const char* kernel_name, PathBuffer& out);

}  // namespace cacheshim::given_back
