// SPDX-License-Identifier: Apache-2.0
// A library whose RPATH is $ORIGIN/leaves, for itself and for what it loads.
#include <dlfcn.h>
#include <stddef.h>

void* open_from_here(const char* name);
void* open_from_here(const char* name) {
  void* const handle = dlopen(name, RTLD_NOW);
  return handle == NULL ? NULL : handle;  // a call, and no jump: libc shall see who calls
}
