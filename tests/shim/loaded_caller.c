// SPDX-License-Identifier: Apache-2.0
// A library whose RPATH is $ORIGIN/leaves. When it calls dlopen with a plain name, the loader searches
// that directory.
#include <dlfcn.h>

void* open_from_here(const char* name);
void* open_from_here(const char* name) {
  // The volatile variable prevents a tail call: libc finds the calling library by the return address.
  void* volatile handle = dlopen(name, RTLD_NOW);
  return handle;
}
