// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include <array>

// Replaces dlsym(RTLD_NEXT). dlsym takes a lock and may allocate, so a library that used it would have to resolve every
// name when the process starts, at 0.4 µs each. Objects that are loaded with the program are never unloaded, so their
// symbol tables can be read at any time, even in a signal handler.
namespace cacheshim {
namespace {

// A preloaded allocator may open files in its first malloc, and dlsym may call malloc. Without this
// flag, the resolution would recurse forever; with the flag, the inner resolution fails.
thread_local bool is_resolving = false;

constexpr std::size_t kMostNoted = 64;
constinit std::array<LoadedObject, kMostNoted> noted;
constinit std::atomic<std::size_t> noted_count{0};

enum class Found {
  kNowhere,
  kHere,
  kNeedsDlsym,  // the symbol table is not sufficient; only dlsym finds the function
};

Found find_in(const LoadedObject& object, const SymbolName& name, void*& function) {
  const ElfW(Sym)* const symbol = object.find(name);
  if (symbol == nullptr) return object.is_readable() ? Found::kNowhere : Found::kNeedsDlsym;
  function = object.function(symbol);
  return function == nullptr ? Found::kNeedsDlsym : Found::kHere;
}

// Returns the next object after this library, which dlsym(RTLD_NEXT) would search first; null if
// this library is not in the loader's list, or is the last object there.
const link_map* next_object() {
  const link_map* const own = own_object();
  return own == nullptr ? nullptr : own->l_next;
}

// Used with glibc before 2.34: there, dlsym is in libdl, which few programs load.
void* find_without_dlsym(const SymbolName& name) {
  void* function = nullptr;
  for (const link_map* listed = next_object(); listed != nullptr; listed = listed->l_next) {
    if (find_in(LoadedObject(*listed), name, function) == Found::kHere) return function;
  }
  return nullptr;
}

void* ask_loader(const SymbolName& name) {
  if (is_resolving) return nullptr;
  const auto libc_dlsym = libc_loader().dlsym;  // this library interposes ::dlsym
  if (libc_dlsym == nullptr) return find_without_dlsym(name);
  if (!may_be_defined(name)) return nullptr;
  is_resolving = true;
  void* const found = libc_dlsym(RTLD_NEXT, name.text);
  // Clears the dlerror(3) text: this library caused the error, not the application.
  if (const auto clear_error = libc_loader().dlerror; found == nullptr && clear_error != nullptr) {
    (void)clear_error();
  }
  is_resolving = false;
  return found;
}

}  // namespace

// Stops at libc, which has nearly all interposed names. Objects that are loaded later, and may be
// unloaded again, follow libc in the search order.
void note_next_objects() {
  std::size_t count = 0;
  bool is_libc = false;
  const link_map* listed = next_object();
  for (; listed != nullptr && count < kMostNoted && !is_libc; listed = listed->l_next) {
    noted.data()[count] = LoadedObject(*listed);
    is_libc = noted.data()[count++].is_called(kLibcName);
  }
  if (is_libc) return noted_count.store(count, std::memory_order_release);
    // The list does not reach libc. So resolve all symbols now, because dlsym cannot be called in
    // every context later.
#define CACHESHIM_SYMBOL(name, group) (void)real::name.get();
#include "shim/symbols.def"
#undef CACHESHIM_SYMBOL
}

void* find_next_function(const SymbolName& name) {
  const std::size_t count = noted_count.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    void* function = nullptr;
    const Found found = find_in(noted.data()[i], name, function);
    if (found == Found::kHere) return function;
    if (found == Found::kNeedsDlsym) break;
  }
  return ask_loader(name);
}

}  // namespace cacheshim

// The only symbol of the C++ runtime that abstract classes need. Never called.
extern "C" [[gnu::visibility("hidden")]] void __cxa_pure_virtual() { __builtin_trap(); }
