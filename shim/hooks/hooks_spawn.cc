// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <atomic>
#include <cstring>

#include "shim/routing/routed_call.h"
#include "shim/start/child_environment.h"
#include "shim/start/command.h"

// posix_spawn and its file actions, and the functions that start a shell. If there are file
// actions, a relative path is not routed, because the actions may change the working directory.

using cacheshim::CallKind;
using cacheshim::ErrnoGuard;
using cacheshim::PathAt;
using cacheshim::PathBuffer;
using cacheshim::RoutedPath;
namespace child_environment = cacheshim::child_environment;
namespace command = cacheshim::command;
namespace real = cacheshim::real;
namespace runtime = cacheshim::runtime;

namespace {

struct Spawn {
  pid_t* child;
  const posix_spawn_file_actions_t* actions;
  const posix_spawnattr_t* attributes;
  char* const* arguments;
};

bool is_ours(const char* path, const Spawn& spawn) {
  return runtime::may_match(path) && (*path == '/' || spawn.actions == nullptr);
}

template <class Real>
int spawn_interpreter(Real& real_spawn, const char* script, const Spawn& spawn,
                      char* const* environment) {
  command::ScriptLine line;
  if (!command::read_script_line(script, line)) return ENOENT;
  PathBuffer buffer;
  const RoutedPath routed = runtime::route({AT_FDCWD, line.interpreter}, buffer);
  if (routed.path == line.interpreter) return ENOENT;
  std::size_t count = 0;
  while (spawn.arguments[count] != nullptr) ++count;
  char** const words = static_cast<char**>(__builtin_alloca((count + 4) * sizeof(char*)));
  std::size_t at = 0;
  words[at++] = const_cast<char*>(line.interpreter);
  if (line.argument != nullptr) words[at++] = const_cast<char*>(line.argument);
  words[at++] = const_cast<char*>(script);
  for (std::size_t i = 1; i < count; ++i) words[at++] = spawn.arguments[i];
  words[at] = nullptr;
  return real_spawn(spawn.child, routed.path, spawn.actions, spawn.attributes, words, environment);
}

// Call after a failure to start a program. If the program is a script whose interpreter is in a route,
// starts the interpreter. If the mount is gone, tries the default path. Returns 0 or an errno.
template <class Real>
int spawn_again(Real& real_spawn, const RoutedPath& routed, PathAt at, const Spawn& spawn,
                char* const* environment, int error) {
  const bool active = runtime::state.load(std::memory_order_relaxed) != runtime::State::kInactive;
  const bool named = routed.path != nullptr && *routed.path == '/';
  if (error == ENOENT && active && named) {
    if (spawn_interpreter(real_spawn, routed.path, spawn, environment) == 0) return 0;
  }
  if (routed.kind == RoutedPath::Kind::kForeign) return error;
  if (!runtime::fell_back(at, CallKind::kLookup, error)) return error;
  PathBuffer buffer;
  const RoutedPath fallen = runtime::route(at, buffer);
  return real_spawn(spawn.child, fallen.path, spawn.actions, spawn.attributes, spawn.arguments,
                    environment);
}

// Returns 0 or an errno, as posix_spawn does.
template <class Real>
int spawn_path(Real& real_spawn, const char* path, const Spawn& spawn, char* const* environment) {
  const PathAt at{AT_FDCWD, path};
  return command::call_for_child(at, environment, [&](char* const* with_ours) {
    const int entry_errno = errno;
    PathBuffer buffer;
    RoutedPath routed;
    routed.path = path;
    if (is_ours(path, spawn)) routed = runtime::route(at, buffer);
    errno = entry_errno;
    const int error = real_spawn(spawn.child, routed.path, spawn.actions, spawn.attributes,
                                 spawn.arguments, with_ours);
    if (error == 0) return 0;
    const int own_errno = errno;
    const int last_error = spawn_again(real_spawn, routed, at, spawn, with_ours, error);
    errno = last_error == 0 ? entry_errno : own_errno;
    return last_error;
  });
}

// Routes the path of a file action in advance, because the child uses it without a hook.
template <class Add>
int add_action(const char* path, CallKind kind, Add add) {
  if (!runtime::may_match(path) || *path != '/') return add(path);
  PathBuffer buffer;
  const char* routed = path;
  {
    const ErrnoGuard errno_guard;
    routed = cacheshim::route_checked({AT_FDCWD, path}, kind, buffer).path;
  }
  return add(routed);
}

// Changes the process's own environment during a call that starts a shell, as call_with() does for
// other programs: if LD_PRELOAD is missing, adds our variables. One thread does this at a time; the
// shell of a second thread gets the environment that the first thread has changed.
class ShellEnvironment {
 public:
  ShellEnvironment() {
    using child_environment::Library;
    const bool lacks = child_environment::lacks_ours(::environ);
    const auto change =
        child_environment::find_change(::environ, lacks ? Library::kAdded : Library::kAsItIs);
    if (change.pointers == 0 || change.pointers > kRoom || change.bytes > sizeof text) return;
    if (in_use.exchange(true)) return;
    owns_ = true;
    before_ = ::environ;
    child_environment::apply_change(before_, change, added, text);
    ::environ = added;
  }
  ~ShellEnvironment() {
    if (!owns_) return;
    if (::environ == added)
      ::environ = before_;  // not if another thread has set a variable meanwhile
    in_use.store(false);
  }
  ShellEnvironment(const ShellEnvironment&) = delete;
  ShellEnvironment& operator=(const ShellEnvironment&) = delete;

 private:
  static constexpr std::size_t kRoom = 4096;
  static constinit inline std::atomic<bool> in_use{false};
  // The strings stay readable for threads that read the environment later.
  static constinit inline char* added[kRoom] = {};
  static constinit inline char text[PATH_MAX] = {};
  bool owns_ = false;
  char** before_ = nullptr;
};

}  // namespace

CACHESHIM_EXPORT int posix_spawn(pid_t* child, const char* path,
                                 const posix_spawn_file_actions_t* actions,
                                 const posix_spawnattr_t* attributes, char* const arguments[],
                                 char* const environment[]) {
  return spawn_path(real::posix_spawn, path, {child, actions, attributes, arguments}, environment);
}

CACHESHIM_EXPORT int posix_spawnp(pid_t* child, const char* file,
                                  const posix_spawn_file_actions_t* actions,
                                  const posix_spawnattr_t* attributes, char* const arguments[],
                                  char* const environment[]) {
  const Spawn spawn{child, actions, attributes, arguments};
  if (file == nullptr || std::strchr(file, '/') != nullptr) {
    return spawn_path(real::posix_spawnp, file, spawn, environment);
  }
  const char* const path_list = command::path_list();
  bool by_us = false;
  {
    const ErrnoGuard errno_guard;
    by_us = command::search_is_ours(file, path_list, environment);
  }
  if (!by_us) {
    return child_environment::call_with(
        environment, child_environment::Library::kAsItIs, [&](char* const* changed) {
          return real::posix_spawnp(child, file, actions, attributes, arguments, changed);
        });
  }
  const int error = command::search(file, path_list, [&](const char* candidate) {
    return spawn_path(real::posix_spawnp, candidate, spawn, environment);
  });
  if (error != 0) errno = error;  // libc's own search sets errno too
  return error;
}

CACHESHIM_EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t* actions, int fd,
                                                      const char* path, int flags,
                                                      mode_t mode) noexcept {
  const CallKind kind = (flags & O_CREAT) != 0 ? CallKind::kCreate : CallKind::kLookup;
  return add_action(path, kind, [&](const char* p) {
    return real::posix_spawn_file_actions_addopen(actions, fd, p, flags, mode);
  });
}

CACHESHIM_EXPORT int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t* actions,
                                                          const char* path) noexcept {
  return add_action(path, CallKind::kLookup, [&](const char* p) {
    return real::posix_spawn_file_actions_addchdir_np(actions, p);
  });
}

CACHESHIM_EXPORT int system(const char* command) {
  const ShellEnvironment environment;
  return real::system(command);
}

CACHESHIM_EXPORT FILE* popen(const char* command, const char* mode) {
  const ShellEnvironment environment;
  return real::popen(command, mode);
}
