// SPDX-License-Identifier: Apache-2.0
// A library whose RPATH is $ORIGIN/leaves, which the loader uses for libraries that it loads by a
// plain name.
#include <dlfcn.h>

void* open_from_here(const char* name);
void* open_from_here(const char* name) {
  // Not a tail call: libc finds the calling library by the return address.
  void* volatile handle = dlopen(name, RTLD_NOW);
  return handle;
}
