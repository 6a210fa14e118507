// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "common/loaded_symbol.h"

namespace cacheshim {
namespace {

// A preloaded allocator may open files in its first malloc, and dlsym may call malloc: the inner
// look-up fails instead of going round for ever.
thread_local bool looking_up = false;

}  // namespace

void* find_next_symbol(const char* name) {
  if (looking_up) return nullptr;
  const auto find = libc_loader().find;  // dlsym itself is one of our own names
  if (find == nullptr) return nullptr;
  looking_up = true;
  void* const found = find(RTLD_NEXT, name);
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
