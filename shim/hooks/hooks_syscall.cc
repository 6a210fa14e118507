// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <sys/syscall.h>
#ifdef SYS_openat2
#include <linux/openat2.h>
#endif

#include <cstring>

#include "shim/direct/direct_descriptor.h"
#include "shim/direct/direct_directory.h"
#include "shim/routing/routed_call.h"
#include "shim/start/command.h"

// The hook of syscall(2), which CPython, libtorch and uv use for system calls that their libc lacks. A table lists
// which arguments are paths. Separate functions handle calls that return a path, that change the working directory, or
// that affect direct answers. All other calls are passed to the kernel unchanged.

using cacheshim::CallKind;
using cacheshim::PathAt;
namespace command = cacheshim::command;
namespace direct = cacheshim::direct;
namespace real = cacheshim::real;
namespace runtime = cacheshim::runtime;

namespace {

constexpr signed char kNone = -1;

// Positions of arguments, from 0. If a call has no descriptor for a path, the descriptor's position
// is kNone.
struct PathCall {
  long number;
  signed char dirfd;
  signed char path;
  CallKind kind = CallKind::kLookup;
  signed char dirfd2 = kNone;
  signed char path2 = kNone;
};

constexpr CallKind kCreate = CallKind::kCreate;

// The calls outside #ifdef exist on all architectures; newer architectures or older kernel headers
// lack some of the others.
constexpr PathCall kCalls[] = {
    {SYS_openat, 0, 1},
    {SYS_newfstatat, 0, 1},
    {SYS_statx, 0, 1},
    {SYS_faccessat, 0, 1},
    {SYS_unlinkat, 0, 1},
    {SYS_mkdirat, 0, 1, kCreate},
    {SYS_mknodat, 0, 1, kCreate},
    {SYS_symlinkat, 1, 2, kCreate},
    {SYS_linkat, 0, 1, kCreate, 2, 3},
    {SYS_renameat2, 0, 1, kCreate, 2, 3},
    {SYS_fchmodat, 0, 1},
    {SYS_fchownat, 0, 1},
    {SYS_utimensat, 0, 1},
    {SYS_execveat, 0, 1},
    {SYS_execve, kNone, 0},
    {SYS_truncate, kNone, 0},
    {SYS_statfs, kNone, 0},
    {SYS_inotify_add_watch, kNone, 1},
    {SYS_getxattr, kNone, 0},
    {SYS_lgetxattr, kNone, 0},
    {SYS_setxattr, kNone, 0},
    {SYS_lsetxattr, kNone, 0},
    {SYS_listxattr, kNone, 0},
    {SYS_llistxattr, kNone, 0},
    {SYS_removexattr, kNone, 0},
    {SYS_lremovexattr, kNone, 0},
#ifdef SYS_openat2
    {SYS_openat2, 0, 1},
#endif
#ifdef SYS_faccessat2
    {SYS_faccessat2, 0, 1},
#endif
#ifdef SYS_fchmodat2
    {SYS_fchmodat2, 0, 1},
#endif
#ifdef SYS_renameat
    {SYS_renameat, 0, 1, kCreate, 2, 3},
#endif
#ifdef SYS_open
    {SYS_open, kNone, 0},
    {SYS_creat, kNone, 0, kCreate},
    {SYS_stat, kNone, 0},
    {SYS_lstat, kNone, 0},
    {SYS_access, kNone, 0},
    {SYS_unlink, kNone, 0},
    {SYS_rmdir, kNone, 0},
    {SYS_mkdir, kNone, 0, kCreate},
    {SYS_mknod, kNone, 0, kCreate},
    {SYS_symlink, kNone, 1, kCreate},
    {SYS_link, kNone, 0, kCreate, kNone, 1},
    {SYS_rename, kNone, 0, kCreate, kNone, 1},
    {SYS_chmod, kNone, 0},
    {SYS_chown, kNone, 0},
    {SYS_lchown, kNone, 0},
    {SYS_utime, kNone, 0},
    {SYS_utimes, kNone, 0},
    {SYS_futimesat, 0, 1},
#endif
};

constexpr std::size_t kNumbers = 512;

// Maps a call's number to the index of its row in kCalls plus 1, or to 0 if kCalls has no row for the call.
struct Rows {
  unsigned char of[kNumbers] = {};
  constexpr Rows() {
    for (std::size_t i = 0; i < sizeof kCalls / sizeof *kCalls; ++i) {
      of[kCalls[i].number] = static_cast<unsigned char>(i + 1);
    }
  }
};
constexpr Rows kRows;

struct Arguments {
  long number;
  long values[6];
};

PathAt path_at(const Arguments& arguments, signed char dirfd, signed char path) {
  const int directory = dirfd == kNone ? AT_FDCWD : static_cast<int>(arguments.values[dirfd]);
  return {directory, reinterpret_cast<const char*>(arguments.values[path])};
}

long make(const Arguments& a) {
  const long* const v = a.values;
  return real::syscall(a.number, v[0], v[1], v[2], v[3], v[4], v[5]);
}

#ifdef SYS_openat2
// Returns the options of an openat2(2) call; null for another call, or if the options are too short.
const open_how* how_of(const Arguments& arguments) {
  const bool has_options = arguments.number == SYS_openat2 &&
                           static_cast<std::size_t>(arguments.values[3]) >= sizeof(open_how);
  return has_options ? reinterpret_cast<const open_how*>(arguments.values[2]) : nullptr;
}
#endif

CallKind kind_of(const PathCall& call, const Arguments& arguments) {
  long flags = 0;
  if (call.number == SYS_openat) flags = arguments.values[2];
#ifdef SYS_open
  if (call.number == SYS_open) flags = arguments.values[1];
#endif
#ifdef SYS_openat2
  if (const open_how* const how = how_of(arguments)) flags = static_cast<long>(how->flags);
#endif
  const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return creates ? CallKind::kCreate : call.kind;
}

// Whether the call requires the kernel to resolve the path only below the call's directory
// (RESOLVE_BENEATH or RESOLVE_IN_ROOT). The path of such a call cannot be replaced by a routed
// path.
bool is_confined([[maybe_unused]] const Arguments& arguments) {
#ifdef SYS_openat2
  const open_how* const how = how_of(arguments);
  return how != nullptr && (how->resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT)) != 0;
#else
  return false;
#endif
}

long make_routed(const PathCall& call, Arguments arguments) {
  const PathAt first = path_at(arguments, call.dirfd, call.path);
  if (runtime::may_match(first.path) && is_confined(arguments)) return make(arguments);
  const auto with = [&](const char* path) {
    arguments.values[call.path] = reinterpret_cast<long>(path);
    return make(arguments);
  };
  if (call.path2 == kNone) return cacheshim::call_routed(first, kind_of(call, arguments), with);
  const PathAt second = path_at(arguments, call.dirfd2, call.path2);
  return cacheshim::call_routed_pair(first, second, [&](const char* a, const char* b) {
    arguments.values[call.path2] = reinterpret_cast<long>(b);
    return static_cast<int>(with(a));
  });
}

// Changes the environment of the new program as the hook of execve does.
long make_exec(const PathCall& call, Arguments arguments) {
  const std::size_t position = static_cast<std::size_t>(call.path) + 2;
  char* const* const environment = reinterpret_cast<char* const*>(arguments.values[position]);
  return command::call_with_environment(
      path_at(arguments, call.dirfd, call.path), environment, [&](char* const* with_ours) {
        arguments.values[position] = reinterpret_cast<long>(with_ours);
        return make_routed(call, arguments);
      });
}

// Passes a call that returns a path or changes the working directory to the hook of libc's
// function. Returns false for any other call.
bool make_as_libc(const Arguments& arguments, long& result) {
  const long* const v = arguments.values;
  const auto text = [&](int i) { return reinterpret_cast<char*>(v[i]); };
  switch (arguments.number) {
    case SYS_getcwd: {
      if (v[0] == 0) return false;
      const char* const directory = ::getcwd(text(0), static_cast<std::size_t>(v[1]));
      result = directory == nullptr ? -1 : static_cast<long>(std::strlen(directory) + 1);
      return true;
    }
#ifdef SYS_readlink
    case SYS_readlink:
      result = ::readlink(text(0), text(1), static_cast<std::size_t>(v[2]));
      return true;
#endif
    case SYS_readlinkat:
      result =
          ::readlinkat(static_cast<int>(v[0]), text(1), text(2), static_cast<std::size_t>(v[3]));
      return true;
    case SYS_chdir:
      result = ::chdir(text(0));
      return true;
    case SYS_fchdir:
      result = ::fchdir(static_cast<int>(v[0]));
      return true;
    default:
      return false;
  }
}

// As direct::is_of_descriptor(), for a call whose second argument is the path; `flags` is the
// position of its flags.
bool is_of_descriptor(const Arguments& arguments, int flags) {
  return direct::is_of_descriptor(reinterpret_cast<const char*>(arguments.values[1]),
                                  arguments.values[flags]);
}

// Whether this call must not apply to a descriptor of the base (hooks_file.cc). Does not check
// whether the first argument is such a descriptor.
bool is_for_mount(const Arguments& arguments) {
  switch (arguments.number) {
    case SYS_flock:
    case SYS_fchmod:
    case SYS_fchown:
    case SYS_fsetxattr:
    case SYS_fremovexattr:
      return true;
    case SYS_fcntl:
      return direct::is_lock(static_cast<int>(arguments.values[1]));
    case SYS_fchownat:
      return is_of_descriptor(arguments, 4);
#ifdef SYS_fchmodat2
    case SYS_fchmodat2:
      return is_of_descriptor(arguments, 3);
#endif
    case SYS_utimensat:
      return arguments.values[1] == 0 || is_of_descriptor(arguments, 3);
#ifdef SYS_futimesat
    case SYS_futimesat:
      return arguments.values[1] == 0;
#endif
    default:
      return false;
  }
}

// Converts the attributes that a call returned for a directly opened descriptor to the view's.
void show_descriptor(const Arguments& arguments) {
  const long* const v = arguments.values;
  const auto fd = static_cast<int>(v[0]);
  switch (arguments.number) {
    case SYS_fstat:
      return direct::show_descriptor(fd, *reinterpret_cast<struct stat*>(v[1]));
    case SYS_newfstatat:
      if (!is_of_descriptor(arguments, 3)) return;
      return direct::show_descriptor(fd, *reinterpret_cast<struct stat*>(v[2]));
    case SYS_statx:
      if (!is_of_descriptor(arguments, 2)) return;
      return direct::show_descriptor(fd, *reinterpret_cast<struct statx*>(v[4]));
    default:
      return;
  }
}

// Whether the call creates a process in a new mount or user namespace. No hook runs in that process
// before it can use its new mounts, so its parent must give up direct answers first.
bool is_given_other_mounts(const Arguments& arguments) {
  auto flags = static_cast<unsigned long>(arguments.values[0]);
  if (arguments.number != SYS_clone) {
    const auto* const given =
        reinterpret_cast<const std::uint64_t*>(flags);  // clone_args begins with its flags
    flags = given == nullptr ? 0 : *given;
  }
  return (flags & (CLONE_NEWNS | CLONE_NEWUSER)) != 0;
}

// Handles the effects of a call that is not in the table. If the call closes or replaces the base
// directory's descriptor, gives up that descriptor (direct_directory.h). If the call changes the
// process's user, mounts or system call filter, ends direct answers (direct_view.h).
void prepare_direct(const Arguments& arguments) {
  const auto number = [&](int i) { return static_cast<unsigned>(arguments.values[i]); };
  switch (arguments.number) {
    case SYS_close:
      return direct::make_room(number(0), number(0));
#ifdef SYS_close_range
    case SYS_close_range:
      return direct::make_room(number(0), number(1));
#endif
#ifdef SYS_dup2
    case SYS_dup2:
#endif
    case SYS_dup3:
      return direct::make_room(number(1), number(1));
    case SYS_setuid:
    case SYS_setreuid:
    case SYS_setresuid:
    case SYS_setfsuid:
    case SYS_chroot:
    case SYS_pivot_root:
    case SYS_setns:
    case SYS_unshare:
      return direct::give_up();
    case SYS_prctl:
      if (arguments.values[0] == PR_SET_SECCOMP) direct::give_up_for_filter();
      return;
    case SYS_seccomp:
      return direct::give_up_for_filter();
#ifdef SYS_clone3
    case SYS_clone3:
#endif
    case SYS_clone:
      if (is_given_other_mounts(arguments)) direct::give_up();
      return;
    default:
      return;
  }
}

long make_by_number(const Arguments& arguments) {
  if (kRows.of[arguments.number] == 0) {
    long result = 0;
    prepare_direct(arguments);
    return make_as_libc(arguments, result) ? result : make(arguments);
  }
  const PathCall& call = kCalls[kRows.of[arguments.number] - 1];
  const bool is_exec = arguments.number == SYS_execve || arguments.number == SYS_execveat;
  return is_exec ? make_exec(call, arguments) : make_routed(call, arguments);
}

}  // namespace

// libc declares syscall with "...". Callers pass the integers in the same places as these parameters. The function has
// another name in C++, because C++ would reject a second, different declaration of `syscall`.
extern "C" [[gnu::visibility("default")]] long cacheshim_syscall(long number, long a, long b,
                                                                 long c, long d, long e,
                                                                 long f) noexcept
    __asm__("syscall");

long cacheshim_syscall(long number, long a, long b, long c, long d, long e, long f) noexcept {
  const bool active = runtime::state.load(std::memory_order_relaxed) != runtime::State::kInactive;
  if (!active || static_cast<unsigned long>(number) >= kNumbers) [[likely]] {
    return real::syscall(number, a, b, c, d, e, f);
  }
  const Arguments arguments{number, {a, b, c, d, e, f}};
  if (direct::last_view() == nullptr) return make_by_number(arguments);
  if (is_for_mount(arguments)) (void)direct::leave_base(static_cast<int>(a));
  const long result = make_by_number(arguments);
  if (result == 0) show_descriptor(arguments);
  return result;
}
