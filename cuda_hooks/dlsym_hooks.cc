// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "common/loaded_symbol.h"
#include "cuda_hooks/driver.h"
#include "cuda_hooks/process.h"

// The C++ part of dlsym_entry.S. If a name does not begin with "cu", the hook adds only two
// character comparisons to the call.

using namespace cacheshim;
using namespace cacheshim::cuda;

using Find = void* (*)(void* handle, const char* name);
using FindVersion = void* (*)(void* handle, const char* name, const char* version);

extern "C" {
constinit std::atomic<Find> cacheshim_next_dlsym{nullptr};
constinit std::atomic<FindVersion> cacheshim_next_dlvsym{nullptr};
Find cacheshim_find_next_dlsym();
FindVersion cacheshim_find_next_dlvsym();
void* cacheshim_dlsym_of_handle(void* handle, const char* name);
void* cacheshim_dlvsym_of_handle(void* handle, const char* name, const char* version);
}

namespace {

void* find_nothing(void*, const char*) { return nullptr; }
void* find_no_version(void*, const char*, const char*) { return nullptr; }

// Returns the next function in the search order. It may belong to another interposer.
template <class Function>
Function find_next(std::atomic<Function>& next, const char* name, Function nothing) {
  const Function known = next.load(std::memory_order_relaxed);
  if (known != nullptr) [[likely]]
    return known;
  const LibcLoader loader = libc_loader();
  if (loader.dlsym == nullptr) return nothing;
  const auto found = reinterpret_cast<Function>(loader.dlsym(RTLD_NEXT, name));
  if (found == nullptr) return nothing;
  next.store(found, std::memory_order_relaxed);
  return found;
}

bool may_be_hooked(const char* name) { return name[0] == 'c' && name[1] == 'u'; }

[[gnu::noinline]] void* hook_for(void* found, const char* name, void* handle) {
  if (found == nullptr) return found;
  const Row row = find_row(name);
  if (row == Row::kCount || is_off()) return found;
  const int slot = find_slot(found, handle);
  if (slot == kDirectSlot) return found;
  drivers[slot].set_real(row, found);
  return find_hook(slot, row);
}

}  // namespace

Find cacheshim_find_next_dlsym() { return find_next(cacheshim_next_dlsym, "dlsym", &find_nothing); }

FindVersion cacheshim_find_next_dlvsym() {
  return find_next(cacheshim_next_dlvsym, "dlvsym", &find_no_version);
}

void* cacheshim_dlsym_of_handle(void* handle, const char* name) {
  void* const found = cacheshim_find_next_dlsym()(handle, name);
  return may_be_hooked(name) ? hook_for(found, name, handle) : found;
}

void* cacheshim_dlvsym_of_handle(void* handle, const char* name, const char* version) {
  void* const found = cacheshim_find_next_dlvsym()(handle, name, version);
  return may_be_hooked(name) ? hook_for(found, name, handle) : found;
}
