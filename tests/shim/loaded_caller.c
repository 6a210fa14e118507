// SPDX-License-Identifier: Apache-2.0
// A library whose RPATH is $ORIGIN/leaves: for what it loads by a plain name.
#include <dlfcn.h>

void* open_from_here(const char* name);
void* open_from_here(const char* name) {
  void* volatile handle = dlopen(name, RTLD_NOW);  // a call, and no jump: libc shall see who calls
  return handle;
}
