// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/runtime.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstring>

#include "common/names.h"
#include "shim/direct/fd_link.h"
#include "shim/hooks/path_spelling.h"
#include "shim/report.h"
#include "shim/routing/mount_file.h"

namespace cacheshim::runtime {

constinit std::atomic<State> state{State::kInactive};
constinit Router router;

namespace {

constinit Start start;
constinit std::atomic<unsigned long> mount_device{0};
constinit std::atomic<bool> directory_made[kMaxRoutes] = {};

// Calls lstat(2). Returns 0 or the errno.
int lstat_error(const char* path, struct stat& out) {
  return real::__lxstat(kStatVersion, path, &out) == 0 ? 0 : errno;
}

// Like `mkdir -p`. Ignores errors, because the call that needs the directory will report them.
void make_directories(std::string_view path) {
  PathBuffer directory;
  for (std::size_t i = 0; i < path.size(); ++i) {
    directory.text[i] = path.data()[i];
    const bool last = i + 1 == path.size();
    if (i == 0 || (!last && path.data()[i + 1] != '/')) continue;
    directory.text[i + 1] = '\0';
    (void)real::mkdir(directory.text, mode_t{0777});  // fails with EEXIST for all but the last one or two
  }
}

// Routes a relative path such as ".triton/cache/x" in the home directory. Few relative paths begin
// with the last components of a default path, so few cause the system call that finds their
// directory.
RoutedPath route_from_above(PathAt at, PathBuffer& out) {
  RoutedPath result;
  result.path = at.path;
  PathBuffer buffer;
  std::string_view directory;
  for (std::size_t i = 0;; ++i) {
    const Router::Relative match = router.match_relative(at.path, i);
    if (match.route == kNoRoute) return result;
    if (i == 0) directory = directory_of(at.dirfd, buffer);
    const std::string_view wanted(routes()[match.route].default_path.data(),
                                  match.directory_length);
    if (directory == wanted) return router.complete_relative(at.path, match, out);
  }
}

// Routes a path after the mount is gone. A relative path stays unchanged. But its default directory
// may have to be created, because the process has seen that this directory exists in the view.
RoutedPath route_broken(PathAt at, PathBuffer& out) {
  const bool is_relative = at.path[0] != '/';
  RoutedPath routed =
      is_relative ? route_from_above(at, out) : router.fall_back(at.path, out, same_directory);
  if (is_relative) routed.path = at.path;
  routed.kind = RoutedPath::Kind::kForeign;  // the process has already fallen back
  if (routed.route == kNoRoute) return routed;
  if (!directory_made[routed.route].exchange(true))
    make_directories(routes()[routed.route].default_path);
  return routed;
}

// Routes a relative path with "..". Such a path may lead into a route from outside, or out of the route that contains
// the directory of `at`. If this directory is in the view, the kernel resolves ".." within the mount, whereas the
// application expects the parent in the path that it knows.
RoutedPath route_climbing(PathAt at, PathBuffer& out) {
  RoutedPath result;
  result.path = at.path;
  PathBuffer directory;
  PathBuffer restored;
  PathBuffer whole;
  if (directory_of(at.dirfd, directory).empty()) return result;
  const char* const from = at.dirfd == AT_FDCWD
                               ? path_spelling::working_directory(directory.text, restored)
                               : path_spelling::name(directory.text, restored);
  const bool from_view = from != directory.text;
  if (join_path(whole, {from, "/", at.path}) == 0) return result;
  RoutedPath routed = router.route(whole.text, out, same_directory);
  const bool as_it_was = routed.path == whole.text;
  if (as_it_was && routed.kind == RoutedPath::Kind::kForeign && !from_view) return result;
  if (as_it_was) {
    std::memcpy(out.text, whole.text, std::strlen(whole.text) + 1);
    routed.path = out.text;
  }
  routed.from_length = 0;
  return routed;
}

bool has_dot_dot(const char* path) {
  for (const char* at = path; (at = std::strstr(at, "..")) != nullptr; at += 2) {
    if ((at == path || at[-1] == '/') && (at[2] == '\0' || at[2] == '/')) return true;
  }
  return false;
}

bool is_disconnected(int error) { return error == ENOTCONN || error == ECONNABORTED; }

// Whether the mount still exists. Call after a call on a path of the mount has failed with an error
// that is also possible in a plain directory. Compares device numbers, because the mount of a new
// daemon has another number.
bool mount_is_there() {
  struct stat root;
  const int error = lstat_error(routes().mount().data(), root);
  if (is_disconnected(error)) return false;
  if (error == 0 && root.st_dev == mount_device.load(std::memory_order_relaxed)) return true;
  const Result<MountState> found = read_mount_state(routes().mount());
  // Here, mountinfo could not be read. If the mount's path does not exist either, as in a chroot without
  // /proc, the mount counts as gone. Otherwise the application gets the error of its own call.
  if (!found) return error != ENOENT && error != ENOTDIR;
  if (found->kind == MountKind::kNone || found->kind == MountKind::kForbidden) return false;
  mount_device.store(::gnu_dev_makedev(found->major, found->minor), std::memory_order_relaxed);
  return true;
}

bool is_gone(CallKind kind, int error) {
  struct stat view;
  switch (error) {
    case ENOTCONN:
    case ECONNABORTED:
      return true;
    case ESTALE: {
      const int view_error = lstat_error(routes().view().data(), view);
      return view_error == ESTALE || is_disconnected(view_error);
    }
    case ENOENT:
    case EACCES:
    case EPERM:
    case EROFS:
      return kind == CallKind::kCreate && !mount_is_there();
    default:
      return false;
  }
}

void report_fallback(PathAt at, int error) {
  if (start.warned != nullptr) {
    if (*start.warned == '1') return;
    *start.warned = '1';  // child processes inherit this value
  }
  PathBuffer buffer;
  const RoutedPath routed = router.fall_back(at.path, buffer, same_directory);
  const std::string_view instead = routed.route == kNoRoute ? "the caches' default directories"
                                                            : routes()[routed.route].default_path;
  report_line({"the mount at ", routes().mount(), " is gone (", mount_error_text(error),
               "); using ", instead, " instead"});
}

// Set when the job that this process names turns out to belong to another user. From then on, the
// process's paths go through the symlinks in the mount's root, which the daemon resolves to a view
// of the process's own user.
constinit std::atomic<bool> has_left_view{false};

// Call after EACCES. Returns true if this call has set has_left_view.
bool leaves_closed_view() {
  struct stat view;
  if (::geteuid() == 0 || has_left_view.load(std::memory_order_relaxed)) return false;
  if (lstat_error(routes().view().data(), view) != 0 || view.st_uid == ::geteuid()) return false;
  if ((view.st_mode & 0077) != 0 || has_left_view.exchange(true)) return false;
  if (start.warned != nullptr && *start.warned == '1') return true;
  if (start.warned != nullptr) *start.warned = '1';
  FdLink owner;
  FdLink own;
  report_line({"the job of ", routes().view(), " belongs to ",
               owner.name("uid ", static_cast<int>(view.st_uid)), ", not to ",
               own.name("uid ", static_cast<int>(::geteuid())),
               "; using the latter's own job instead"});
  return true;
}

}  // namespace

RoutedPath route(PathAt at, PathBuffer& out) {
  if (at.path == nullptr) return {};
  if (state.load(std::memory_order_relaxed) == State::kBroken) return route_broken(at, out);
  RoutedPath routed;
  if (at.path[0] == '/') {
    routed = router.route(at.path, out, same_directory);
  } else {
    routed = has_dot_dot(at.path) ? route_climbing(at, out) : route_from_above(at, out);
  }
  path_spelling::note_use(routed);
  // Root's job may belong to another user, now or later, and root must not be served that user's
  // layer. So root's paths go through the symlinks in the mount's root, where the daemon gives root
  // its own view.
  if (routed.kind != RoutedPath::Kind::kRewritten) return routed;
  const bool leaves = has_left_view.load(std::memory_order_relaxed) || ::geteuid() == 0;
  if (leaves) router.leave_view(routed, out);
  return routed;
}

bool same_directory(const char* a, const char* b) {
  struct stat stat_a;
  struct stat stat_b;
  return real::__xstat(kStatVersion, a, &stat_a) == 0 &&
         real::__xstat(kStatVersion, b, &stat_b) == 0 && stat_a.st_dev == stat_b.st_dev &&
         stat_a.st_ino == stat_b.st_ino;
}

std::string_view directory_of(int dirfd, PathBuffer& out) {
  if (dirfd == AT_FDCWD) {
    return real::getcwd(out.text, sizeof out.text) == nullptr ? std::string_view() : out.text;
  }
  if (dirfd < 0) return {};
  FdLink link;
  const ssize_t got = real::readlink(link.name("/proc/self/fd/", dirfd), out.text, sizeof out.text);
  if (got <= 0 || static_cast<std::size_t>(got) >= sizeof out.text) return {};
  out.text[got] = '\0';
  return {out.text, static_cast<std::size_t>(got)};
}

bool fell_back(PathAt at, CallKind kind, int error) {
  if (error == EACCES && leaves_closed_view()) return true;
  if (start.strict || !is_gone(kind, error)) return false;
  State expected = State::kActive;
  if (state.compare_exchange_strong(expected, State::kBroken)) report_fallback(at, error);
  return true;
}

// Reads the device number again, because `mount_device` may be the number of an earlier mount:
// after an unmount, the old daemon may continue to run beside the daemon of the next mount at this
// path.
bool is_device_of_mount(unsigned long device) {
  const auto root = stat_mount_root(routes().mount());
  const auto found = root ? Result<MountState>(*root) : read_mount_state(routes().mount());
  if (!found || found->kind != MountKind::kWhole) return false;
  const unsigned long now = ::gnu_dev_makedev(found->major, found->minor);
  mount_device.store(now, std::memory_order_relaxed);
  return device == now;
}

void activate(const Start& given) {
  start = given;
  mount_device.store(given.device, std::memory_order_relaxed);
  state.store(State::kActive, std::memory_order_release);
  router.open();
}

}  // namespace cacheshim::runtime
