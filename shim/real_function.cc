// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include <dlfcn.h>

// dlsym by its first version. A program built on glibc 2.34 or newer would ask for
// dlsym@GLIBC_2.34, which no older system has; before that version the symbol was libdl.so.2's
// alone, so the library names both, and each has it or is an empty shell.
extern "C" void* cacheshim_dlsym(void* handle, const char* name);
#if defined(__x86_64__)
__asm__(".symver cacheshim_dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver cacheshim_dlsym, dlsym@GLIBC_2.17");
#else
#error "which version of dlsym is this architecture's first?"
#endif

namespace cacheshim {
namespace {

// A preloaded allocator may open files in its first malloc, and dlsym may call malloc: the inner
// look-up fails instead of going round for ever.
thread_local bool looking_up = false;

}  // namespace

void* find_next_symbol(const char* name) {
  if (looking_up) return nullptr;
  looking_up = true;
  void* const found = cacheshim_dlsym(RTLD_NEXT, name);
  looking_up = false;
  return found;
}

namespace real {

void resolve_all() {
#define CACHESHIM_SYMBOL(name, group) (void)name.get();
#include "shim/symbols.def"
#undef CACHESHIM_SYMBOL
}

}  // namespace real
}  // namespace cacheshim

// The only thing of the C++ runtime that abstract classes would need. Never called.
extern "C" [[gnu::visibility("hidden")]] void __cxa_pure_virtual() { __builtin_trap(); }
