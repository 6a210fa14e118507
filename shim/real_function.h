// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <atomic>
#include <cerrno>
#include <type_traits>

// The functions behind ours: cacheshim::real::open is the open that would have been called without
// the library. Types come from libc's own headers and cannot drift.
namespace cacheshim {

// The address that `name` has after this library in the search order, or null.
void* find_next_symbol(const char* name);

// What a call of this type returns when it failed.
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

  // Sets ENOSYS and returns a failure where this libc has no such function.
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

  // dlsym is not async-signal-safe: the constructor asks for every row, and only calls that come
  // before it (of other libraries' constructors) look theirs up themselves.
  Pointer get() {
    const Pointer known = pointer_.load(std::memory_order_relaxed);
    if (known != nullptr) [[likely]]
      return known;
    const Pointer found = reinterpret_cast<Pointer>(find_next_symbol(name_));
    pointer_.store(found, std::memory_order_relaxed);
    return found;
  }

 private:
  const char* name_;
  std::atomic<Pointer> pointer_{nullptr};
};

namespace real {
#define CACHESHIM_SYMBOL(name, group) inline constinit RealFunction<decltype(&::name)> name{#name};
#include "shim/symbols.def"
#undef CACHESHIM_SYMBOL

void resolve_all();
}  // namespace real

}  // namespace cacheshim
