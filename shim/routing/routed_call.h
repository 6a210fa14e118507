// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/errno_guard.h"
#include "shim/real_function.h"
#include "shim/routing/stale_name.h"
#include "shim/runtime.h"

// The body of nearly all hooks: calls libc with the routed path, and then with the default path if
// the first call shows that the mount is gone.
//
// The lambda of a hook captures by value. So nothing refers to the hook's stack frame, and the hook
// makes a tail call to libc if the path is foreign. With [&], the hook would return through a frame
// that it pushed before the system call. Many processors mispredict this return, and a misprediction
// takes 10 to 20 ns.
//
// A hook sets errno to 0 before the call, and restores the old value if the call leaves errno 0. So the hook cannot
// mistake an old value for this call's error (pathconf may fail without setting errno), and errno remains unchanged for
// the application if the call does not set it.
namespace cacheshim {

#define CACHESHIM_EXPORT extern "C" [[gnu::visibility("default")]]

// Returns the result of call(). Writes the errno that it set, or 0, to `own_errno`, and leaves
// errno as libc alone would have.
template <class Call>
auto call_with_own_errno(int entry_errno, int& own_errno, Call& call) {
  errno = 0;
  auto result = call();
  own_errno = errno;
  if (own_errno == 0) errno = entry_errno;
  return result;
}

// As call_with_own_errno(), but repeats a call that has a path of the mount (`is_ours`). Repeats it while it fails with
// ESTALE, up to 8 calls in all. ESTALE means that a file was replaced between its lookup and its use. The kernel itself
// tries twice, so without these repetitions the application would get ESTALE after two replacements in a row. In a
// plain directory this error never occurs. Also repeats the call once after ENOENT if refresh() finds that the kernel
// had wrongly cached the name as absent (stale_name.h). In both cases the failed call has had no effect.
template <class Call, class Refresh>
auto call_while_stale(bool is_ours, int entry_errno, int& own_errno, Call& call, Refresh refresh) {
  int turns = is_ours ? 8 : 1;  // after this number of calls, the application gets ESTALE
  bool is_refreshed = false;
  for (;;) {
    const auto result = call_with_own_errno(entry_errno, own_errno, call);
    if (result != failure<decltype(call())>() || --turns <= 0) return result;
    if (own_errno == ESTALE) continue;
    if (own_errno != ENOENT || is_refreshed || !refresh()) return result;
    is_refreshed = true;
  }
}

// Returns the route for a call that cannot be repeated. Calls access(2) first, to detect that the
// mount is gone, or that the kernel wrongly caches the name as absent. May change errno.
inline RoutedPath route_checked(PathAt at, CallKind kind, PathBuffer& buffer) {
  RoutedPath routed = runtime::route(at, buffer);
  if (routed.kind == RoutedPath::Kind::kForeign || real::access(routed.path, F_OK) == 0) {
    return routed;
  }
  if (errno == ENOENT) (void)refresh_stale_name(routed.path, kind);
  if (runtime::fell_back(at, kind, errno)) routed = runtime::route(at, buffer);
  return routed;
}

template <class Call>
[[gnu::noinline]] auto call_routed_slowly(PathAt at, CallKind kind, Call call) {
  const int entry_errno = errno;
  PathBuffer buffer;
  RoutedPath routed = runtime::route(at, buffer);
  int own_errno = 0;
  auto once = [&] { return call(routed.path); };
  const bool is_ours = routed.kind != RoutedPath::Kind::kForeign;
  const auto refresh = [&] { return refresh_stale_name(routed.path, kind); };
  const auto result = call_while_stale(is_ours, entry_errno, own_errno, once, refresh);
  if (result != failure<decltype(call(at.path))>() || !is_ours) return result;
  if (!runtime::fell_back(at, kind, own_errno)) {
    errno = own_errno == 0 ? entry_errno : own_errno;
    return result;
  }
  routed = runtime::route(at, buffer);
  return call_with_own_errno(entry_errno, own_errno, once);
}

// Returns call(path) for the routed path of `at`. Requires: call() returns -1 or null on failure.
template <class Call>
auto call_routed(PathAt at, CallKind kind, Call call) {
  if (!runtime::may_match(at.path)) [[likely]]
    return call(at.path);
  return call_routed_slowly(at, kind, call);
}

template <class Call>
[[gnu::noinline]] auto call_routed_pair_slowly(PathAt a, PathAt b, Call call) {
  const int entry_errno = errno;
  PathBuffer buffer_a;
  PathBuffer buffer_b;
  RoutedPath routed_a = runtime::route(a, buffer_a);
  RoutedPath routed_b = runtime::route(b, buffer_b);
  int own_errno = 0;
  auto once = [&] { return call(routed_a.path, routed_b.path); };
  constexpr auto kForeign = RoutedPath::Kind::kForeign;
  const bool is_ours = routed_a.kind != kForeign || routed_b.kind != kForeign;
  const auto refresh = [&] {
    const bool has_a = refresh_stale_name(routed_a.path, CallKind::kLookup);
    return refresh_stale_name(routed_b.path, CallKind::kCreate) || has_a;
  };
  const int result = call_while_stale(is_ours, entry_errno, own_errno, once, refresh);
  if (result != -1 || !is_ours) return result;
  if (!runtime::fell_back(routed_a.kind == kForeign ? b : a, CallKind::kCreate, own_errno)) {
    errno = own_errno;
    return result;
  }
  routed_a = runtime::route(a, buffer_a);
  routed_b = runtime::route(b, buffer_b);
  return call_with_own_errno(entry_errno, own_errno, once);
}

// As call_routed(), for calls that take two paths and create the second: call(path_a, path_b).
template <class Call>
int call_routed_pair(PathAt a, PathAt b, Call call) {
  if (!runtime::may_match(a.path) && !runtime::may_match(b.path)) [[likely]] {
    return call(a.path, b.path);
  }
  return call_routed_pair_slowly(a, b, call);
}

}  // namespace cacheshim
