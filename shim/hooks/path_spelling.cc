// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/hooks/path_spelling.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "shim/direct/direct_descriptor.h"
#include "shim/runtime.h"
#include "shim/start/child_environment.h"

namespace cacheshim::path_spelling {
namespace {

// A "spelling" is a number that identifies the spelling of a path: a route's number for DEFAULT/x, kNoRoute for
// MOUNT/NAME/x, or one of the two values below.
constexpr unsigned kAsView = kMaxRoutes + 1;
constexpr unsigned kUnknown = kMaxRoutes + 2;

constinit std::atomic<unsigned> last_used{kNoRoute};
constinit std::atomic<bool> used[kMaxRoutes] = {};

// A process, and the spelling that it noted. Each process ID has two possible slots, because a
// child of vfork writes to its parent's memory and must not change the parent's slot.
struct alignas(std::uint64_t) Noted {
  pid_t process;
  unsigned spelling;
};
constexpr unsigned kSlots = 8;
constinit std::atomic<Noted> directories[kSlots] = {};
static_assert(std::atomic<Noted>::is_always_lock_free);

std::atomic<Noted>& slot_of(pid_t process, unsigned choice) {
  return directories[(static_cast<unsigned>(process) + choice) % kSlots];
}

// Returns what this process has noted for its working directory. A forked child that has noted nothing uses its
// parent's record. Returns kUnknown if there is no record.
Noted find_noted() {
  for (const pid_t process : {::getpid(), ::getppid()}) {
    for (const unsigned choice : {0u, 1u}) {
      const Noted noted = slot_of(process, choice).load(std::memory_order_relaxed);
      if (noted.process == process) return noted;
    }
  }
  return {0, kUnknown};
}

unsigned spelling_of(const RoutedPath& routed) {
  if (routed.kind == RoutedPath::Kind::kForeign) return kUnknown;
  return routed.names_view ? kAsView : static_cast<unsigned>(routed.route);
}

unsigned preferred_spelling(std::string_view name) {
  const unsigned last = last_used.load(std::memory_order_relaxed);
  if (last >= kMaxRoutes || runtime::routes()[last].name == name) return last;
  for (unsigned i = 0; i < kMaxRoutes; ++i) {
    if (used[i].load(std::memory_order_relaxed) && runtime::routes()[i].name == name) return i;
  }
  return kNoRoute;
}

const char* write_name(const char* kernel_name, const Router::Place& place, unsigned spelling,
                       PathBuffer& out) {
  if (spelling == kAsView) return kernel_name;
  return runtime::router.restore(kernel_name, place, spelling, out);
}

// Returns the route of `name` whose default path is the value of CACHESHIM_DIRECTORY, or kNoRoute.
unsigned route_from_parent(std::string_view name) {
  const char* const path = child_environment::find_variable(::environ, "CACHESHIM_DIRECTORY");
  if (path == nullptr) return kNoRoute;
  const Routes& routes = runtime::routes();
  for (unsigned i = 0; i < routes.size(); ++i) {
    if (routes[i].name == name && routes[i].default_path == path) return i;
  }
  return kNoRoute;
}

// Returns a copy of PWD if the route of PWD leads to `kernel_name` or `under_mount`, which are two
// names of one directory. Otherwise returns null.
const char* restore_pwd(const char* kernel_name, const char* under_mount, PathBuffer& out) {
  const char* const pwd = child_environment::find_variable(::environ, "PWD");
  if (pwd == nullptr || *pwd != '/' || std::strlen(pwd) >= sizeof out.text) return nullptr;
  PathBuffer buffer;
  const RoutedPath routed = runtime::router.route(pwd, buffer, runtime::same_directory);
  if (std::strcmp(routed.path, kernel_name) != 0 && std::strcmp(routed.path, under_mount) != 0) {
    return nullptr;
  }
  std::memcpy(out.text, pwd, std::strlen(pwd) + 1);
  return out.text;
}

}  // namespace

void note_use(const RoutedPath& routed) {
  const unsigned spelling = spelling_of(routed);
  if (spelling == kUnknown) return;
  if (last_used.load(std::memory_order_relaxed) != spelling) {
    last_used.store(spelling, std::memory_order_relaxed);
  }
  if (spelling < kMaxRoutes && !used[spelling].load(std::memory_order_relaxed)) {
    used[spelling].store(true, std::memory_order_relaxed);
  }
}

void note_directory(const RoutedPath& routed) {
  const pid_t self = ::getpid();
  const pid_t first = slot_of(self, 0).load(std::memory_order_relaxed).process;
  const unsigned choice = first != self && first == ::getppid() ? 1 : 0;
  slot_of(self, choice).store({self, spelling_of(routed)}, std::memory_order_relaxed);
}

const char* directory_for_children() {
  const Noted last = find_noted();
  if (last.spelling == kUnknown) return nullptr;
  return last.spelling < kMaxRoutes ? runtime::routes()[last.spelling].default_path.data() : "";
}

const char* name(const char* kernel_name, PathBuffer& out) {
  PathBuffer buffer;
  const char* const in_view = direct::path_in_view(kernel_name, buffer);
  if (in_view != nullptr) kernel_name = in_view;
  const Router::Place place = runtime::router.find_place(kernel_name, runtime::same_directory);
  const char* const found =
      place.name.empty() ? kernel_name
                         : write_name(kernel_name, place, preferred_spelling(place.name), out);
  if (found != buffer.text) return found;
  std::memcpy(out.text, buffer.text, std::strlen(buffer.text) + 1);
  return out.text;
}

const char* name_as(const char* kernel_name, const RoutedPath& routed, PathBuffer& out) {
  if (routed.kind == RoutedPath::Kind::kForeign) return name(kernel_name, out);
  const Router::Place place = runtime::router.find_place(kernel_name, runtime::same_directory);
  if (place.name.empty()) return kernel_name;
  return write_name(kernel_name, place, spelling_of(routed), out);
}

const char* working_directory(const char* kernel_name, PathBuffer& out) {
  const Router& router = runtime::router;
  const Router::Place place = router.find_place(kernel_name, runtime::same_directory);
  if (place.name.empty()) return kernel_name;
  const Noted last = find_noted();
  if (last.spelling != kUnknown) return write_name(kernel_name, place, last.spelling, out);
  PathBuffer under_mount;
  const char* const by_mount = router.restore(kernel_name, place, kNoRoute, under_mount);
  const char* const pwd = restore_pwd(kernel_name, by_mount, out);
  if (pwd != nullptr) return pwd;
  const unsigned inherited = route_from_parent(place.name);
  const unsigned spelling = inherited != kNoRoute ? inherited : preferred_spelling(place.name);
  return write_name(kernel_name, place, spelling, out);
}

}  // namespace cacheshim::path_spelling
