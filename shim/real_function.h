// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <atomic>
#include <cerrno>
#include <type_traits>

#include "common/loaded_symbol.h"

// The original functions of the interposed names: cacheshim::real::open is the open that the
// program would call without this library. The types come from libc's own headers.
namespace cacheshim {

// Returns the address of the next definition of `name` after this library in the search order, or null. Once
// note_next_objects() has returned, a call is async-signal-safe unless it must call dlsym. It calls dlsym if no
// recorded object has the name, or if an object's symbol table does not give the address (LoadedObject::function()).
void* find_next_function(const SymbolName& name);

// Records the objects after this library in the search order, up to libc. If the loader's list does
// not reach libc, resolves all names instead. Call in the constructor.
void note_next_objects();

// Returns the failure value of a function with this result type.
template <class R>
constexpr R failure() {
  if constexpr (std::is_pointer_v<R>) {
    return nullptr;
  } else {
    return R{-1};
  }
}

template <class Pointer>
class RealFunction {
 public:
  constexpr explicit RealFunction(const char* name) : name_(name) {}
  RealFunction(const RealFunction&) = delete;
  RealFunction& operator=(const RealFunction&) = delete;

  // Sets ENOSYS and returns failure() if this libc has no such function.
  template <class... Args>
  auto operator()(Args... args) {
    const Pointer function = get();
    using R = decltype(function(args...));
    if (function == nullptr) [[unlikely]] {
      errno = ENOSYS;
      return failure<R>();
    }
    return function(args...);
  }

  // Resolves the name at the first call: a process calls few of these functions, and resolving all
  // of them would add 50 µs to Python's start.
  Pointer get() {
    const Pointer known = pointer_.load(std::memory_order_relaxed);
    if (known != nullptr) [[likely]]
      return known;
    const Pointer found = reinterpret_cast<Pointer>(find_next_function(name_));
    pointer_.store(found, std::memory_order_relaxed);
    return found;
  }

 private:
  SymbolName name_;
  std::atomic<Pointer> pointer_{nullptr};
};

namespace real {
#define CACHESHIM_SYMBOL(name, group) inline constinit RealFunction<decltype(&::name)> name{#name};
#include "shim/symbols.def"
#undef CACHESHIM_SYMBOL
}  // namespace real

}  // namespace cacheshim
