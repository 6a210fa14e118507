// SPDX-License-Identifier: Apache-2.0
#include "cuda_hooks/loading_variable.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#include "common/loaded_symbol.h"

namespace cacheshim::cuda {
namespace {

// Not const, because these strings become parts of the environment.
constinit char eager_entry[] = "CUDA_MODULE_LOADING=EAGER";
constinit char lazy_entry[] = "CUDA_MODULE_LOADING=LAZY";
constinit char eager_mark[] = "CACHESHIM_CUDA_SET=EAGER";
constinit char lazy_mark[] = "CACHESHIM_CUDA_SET=LAZY";

constexpr std::size_t kMaxEntries = 1024;
constinit char* block[kMaxEntries] = {};

const char* value_of(Loading loading) { return loading == Loading::kEager ? "EAGER" : "LAZY"; }

// Returns the variable's position in environ, or null.
char** find_entry(std::string_view name) {
  if (::environ == nullptr) return nullptr;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name.data(), name.size()) == 0 && (*entry)[name.size()] == '=') {
      return entry;
    }
  }
  return nullptr;
}

void remove_entry(std::string_view name) {
  char** entry = find_entry(name);
  if (entry == nullptr) return;
  for (; *entry != nullptr; ++entry) *entry = entry[1];
}

// Returns the next definition after this library in the search order. Used for setenv and putenv: bash exports
// functions of these names, and they use tables that bash has not set up when this code runs.
template <class Function>
Function next_definition(const char* name) {
  const auto libc_dlsym = libc_loader().dlsym;
  return libc_dlsym == nullptr ? nullptr : reinterpret_cast<Function>(libc_dlsym(RTLD_NEXT, name));
}

// Calls putenv, which allocates, only if the environment is too large for `block`: this code runs
// in every process, and few processes use CUDA.
void add_entry(char* entry) {
  std::size_t count = 0;
  if (::environ != nullptr) {
    while (::environ[count] != nullptr) ++count;
  }
  if (count + 2 > kMaxEntries) {
    const auto put = next_definition<decltype(&::putenv)>("putenv");
    // If putenv fails for lack of memory, the hook of cuInit tries again.
    if (put != nullptr) (void)put(entry);
    return;
  }
  if (::environ != block) {
    if (count > 0) std::memcpy(block, ::environ, count * sizeof *block);
    ::environ = block;
  }
  block[count] = entry;
  block[count + 1] = nullptr;
}

bool is_set_to(const char* value) {
  char** const entry = find_entry(kLoadingVariable);
  return entry != nullptr && std::strcmp(*entry + kLoadingVariable.size() + 1, value) == 0;
}

void put_entry(std::string_view name, char* entry) {
  char** const there = find_entry(name);
  if (there != nullptr) {
    *there = entry;
  } else {
    add_entry(entry);
  }
}

}  // namespace

std::string_view ProcessEnvironment::find(std::string_view name) const {
  char** const entry = find_entry(name);
  return entry == nullptr ? std::string_view() : std::string_view(*entry + name.size() + 1);
}

void set_loading_at_start(Loading loading) {
  switch (loading) {
    case Loading::kLeave:
      return;
    case Loading::kUnset:
      remove_entry(kLoadingVariable);
      remove_entry(kSetVariable);
      return;
    case Loading::kEager:
    case Loading::kLazy:
      const bool eager = loading == Loading::kEager;
      // If the user has set this value, the library does not record the value as its own.
      if (is_set_to(value_of(loading))) return;
      put_entry(kLoadingVariable, eager ? eager_entry : lazy_entry);
      put_entry(kSetVariable, eager ? eager_mark : lazy_mark);
  }
}

void ensure_loading(Loading loading) {
  if (loading != Loading::kEager && loading != Loading::kLazy) return;
  const char* const wanted = value_of(loading);
  if (is_set_to(wanted)) return;
  const auto set = next_definition<decltype(&::setenv)>("setenv");
  if (set == nullptr) return;  // if the driver is then lazy, check_driver() reports it
  (void)set(kLoadingVariable.data(), wanted, 1);
  (void)set(kSetVariable.data(), wanted, 1);
}

}  // namespace cacheshim::cuda
