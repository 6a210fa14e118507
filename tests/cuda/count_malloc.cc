// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

// A library to be preloaded. When the process exits, it prints the number of the process's allocations.
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* __libc_realloc(void* old, std::size_t size);
extern "C" void* __libc_calloc(std::size_t count, std::size_t size);

namespace {

std::atomic<unsigned> calls{0};

[[gnu::destructor]] void say() {
  char line[32];
  const int length = std::snprintf(line, sizeof line, "mallocs=%u\n", calls.load());
  [[maybe_unused]] const ssize_t written = ::write(1, line, static_cast<std::size_t>(length));
}

}  // namespace

extern "C" {
[[gnu::visibility("default")]] void* malloc(std::size_t size) {
  ++calls;
  return __libc_malloc(size);
}
[[gnu::visibility("default")]] void* realloc(void* old, std::size_t size) {
  ++calls;
  return __libc_realloc(old, size);
}
[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t size) {
  ++calls;
  return __libc_calloc(count, size);
}
}
