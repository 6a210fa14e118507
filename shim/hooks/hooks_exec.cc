// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <cstdarg>
#include <cstring>

#include "shim/direct/fd_link.h"
#include "shim/routing/routed_call.h"
#include "shim/start/child_environment.h"
#include "shim/start/command.h"

// The exec family. The hooks route the program's path, whether the caller names it or a search of
// PATH finds it, and change the program's environment (child_environment.h). For a script, the kernel
// gets the script's path in the view. If the script's interpreter is in a route, the kernel does not
// find the interpreter, so the hook executes it.

using cacheshim::call_routed;
using cacheshim::CallKind;
using cacheshim::PathBuffer;
using cacheshim::RoutedPath;
namespace child_environment = cacheshim::child_environment;
namespace command = cacheshim::command;
namespace real = cacheshim::real;
namespace runtime = cacheshim::runtime;

namespace {

std::size_t count_words(char* const* words) {
  std::size_t count = 0;
  while (words != nullptr && words[count] != nullptr) ++count;
  return count;
}

// Executes the interpreter of `script` if the interpreter is in a route. Call after an exec of `script`
// has failed with ENOENT. Returns only on failure, with errno unchanged.
[[gnu::noinline]] void exec_interpreter(const char* script, char* const* arguments,
                                        char* const* environment) {
  const cacheshim::ErrnoGuard errno_guard;
  command::ScriptLine line;
  if (!command::read_script_line(script, line)) return;
  PathBuffer buffer;
  const RoutedPath routed = runtime::route({AT_FDCWD, line.interpreter}, buffer);
  if (routed.path == line.interpreter) return;
  const std::size_t count = count_words(arguments);
  char** const words = static_cast<char**>(__builtin_alloca((count + 4) * sizeof(char*)));
  std::size_t at = 0;
  words[at++] = const_cast<char*>(line.interpreter);
  if (line.argument != nullptr) words[at++] = const_cast<char*>(line.argument);
  words[at++] = const_cast<char*>(script);
  for (std::size_t i = 1; i < count; ++i) words[at++] = arguments[i];
  words[at] = nullptr;
  // If execve fails, the application gets the error of its own call.
  (void)real::execve(routed.path, words, environment);
}

bool is_active() {
  return runtime::state.load(std::memory_order_relaxed) != runtime::State::kInactive;
}

// `exec` is execve, or execvpe, which also runs text files without a "#!" line.
template <class Exec>
int exec_path(Exec& exec, const char* path, char* const* arguments, char* const* environment) {
  return command::call_with_environment({AT_FDCWD, path}, environment, [&](char* const* with_ours) {
    return call_routed({AT_FDCWD, path}, CallKind::kLookup, [&](const char* p) {
      const int result = exec(p, arguments, with_ours);
      if (errno == ENOENT && p != nullptr && is_active()) exec_interpreter(p, arguments, with_ours);
      return result;
    });
  });
}

int exec_search(const char* file, char* const* arguments, char* const* environment) {
  if (file == nullptr || std::strchr(file, '/') != nullptr) {
    return exec_path(real::execvpe, file, arguments, environment);
  }
  const char* const path_list = command::path_list();
  const int entry_errno = errno;
  const bool by_us = command::search_is_ours(file, path_list, environment);
  errno = entry_errno;
  if (!by_us) {
    return child_environment::call_with(
        environment, child_environment::Library::kAsItIs,
        [&](char* const* changed) { return real::execvpe(file, arguments, changed); });
  }
  errno = command::search(file, path_list, [&](const char* candidate) {
    (void)exec_path(real::execvpe, candidate, arguments, environment);
    return errno;
  });
  return -1;
}

// Writes the path that the kernel would pass to the interpreter of a script that execveat(2) starts.
bool name_script(int dirfd, const char* path, PathBuffer& out) {
  if (*path == '/' || dirfd == AT_FDCWD) return cacheshim::join_path(out, {path}) != 0;
  cacheshim::FdLink link;
  return cacheshim::join_path(out,
                              {link.name("/dev/fd/", dirfd), *path == '\0' ? "" : "/", path}) != 0;
}

// Collects the arguments of the execl family, a list that ends with a null pointer, into an array. `after`: a statement
// that may read the argument after the null pointer.
#define CACHESHIM_COLLECT(words, first, after)                                                   \
  va_list list;                                                                                  \
  va_start(list, first);                                                                         \
  std::size_t count = 1;                                                                         \
  while ((first) != nullptr && va_arg(list, char*) != nullptr) ++count;                          \
  va_end(list);                                                                                  \
  char** const words = static_cast<char**>(__builtin_alloca((count + 1) * sizeof(char*)));       \
  va_start(list, first);                                                                         \
  words[0] = const_cast<char*>(first);                                                           \
  for (std::size_t i = 1; (first) != nullptr && i <= count; ++i) words[i] = va_arg(list, char*); \
  after;                                                                                         \
  va_end(list)

}  // namespace

CACHESHIM_EXPORT int execve(const char* path, char* const arguments[],
                            char* const environment[]) noexcept {
  return exec_path(real::execve, path, arguments, environment);
}

CACHESHIM_EXPORT int execv(const char* path, char* const arguments[]) noexcept {
  return exec_path(real::execve, path, arguments, ::environ);
}

CACHESHIM_EXPORT int execvpe(const char* file, char* const arguments[],
                             char* const environment[]) noexcept {
  return exec_search(file, arguments, environment);
}

CACHESHIM_EXPORT int execvp(const char* file, char* const arguments[]) noexcept {
  return exec_search(file, arguments, ::environ);
}

CACHESHIM_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  CACHESHIM_COLLECT(words, first, );
  return exec_path(real::execve, path, words, ::environ);
}

CACHESHIM_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  CACHESHIM_COLLECT(words, first, );
  return exec_search(file, words, ::environ);
}

CACHESHIM_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  char* const* environment = nullptr;
  CACHESHIM_COLLECT(words, first, environment = va_arg(list, char* const*));
  return exec_path(real::execve, path, words, environment);
}

CACHESHIM_EXPORT int execveat(int dirfd, const char* path, char* const arguments[],
                              char* const environment[], int flags) noexcept {
  return command::call_with_environment({dirfd, path}, environment, [&](char* const* with_ours) {
    return call_routed({dirfd, path}, CallKind::kLookup, [&](const char* p) {
      const int result = real::execveat(dirfd, p, arguments, with_ours, flags);
      PathBuffer script;
      const bool lost = errno == ENOENT && p != nullptr && is_active();
      if (lost && name_script(dirfd, p, script)) {
        exec_interpreter(script.text, arguments, with_ours);
      }
      return result;
    });
  });
}

CACHESHIM_EXPORT int fexecve(int fd, char* const arguments[], char* const environment[]) noexcept {
  return command::call_with_environment({fd, ""}, environment, [&](char* const* with_ours) {
    const int result = real::fexecve(fd, arguments, with_ours);
    PathBuffer script;
    if (errno == ENOENT && is_active() && name_script(fd, "", script)) {
      exec_interpreter(script.text, arguments, with_ours);
    }
    return result;
  });
}
