// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "shim/routing/router.h"

// The names that the kernel gives for what lies in the view, turned into those that the application
// uses: MOUNT/.jobs/JOB/NAME/x is DEFAULT/x to a process that uses this default path, and else
// MOUNT/NAME/x. One that uses several of them is given the last.
//
// The working directory has the name that chdir was given. A process that inherited it goes by PWD
// where that names the same directory, as pwd(1) does, and else by the default path that the
// process that called chdir has noted in CACHESHIM_FOLDER for it.
namespace cacheshim::given_back {

// A path has been used that went to `routed`, or chdir has been given it. A foreign path says
// nothing about the former.
void note_use(const RoutedPath& routed);
void note_directory(const RoutedPath& routed);

// What CACHESHIM_FOLDER has to be in a program that is started here: a default path, empty for
// none, or null where it stays as it is. The text stays.
const char* directory_for_children();

// These return `kernel_name` itself where it is not in the caller's view, and otherwise a name in
// `out`. May change errno.
const char* name(const char* kernel_name, PathBuffer& out);
// For an answer to a call that was given a path: in the same way.
const char* name_as(const char* kernel_name, const RoutedPath& routed, PathBuffer& out);
const char* working_directory(const char* kernel_name, PathBuffer& out);

}  // namespace cacheshim::given_back
