// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/direct/direct.h"
#include "shim/routing/routed_call.h"

// The body of hooks for calls that the base may answer.
namespace cacheshim {

template <class Answer, class TryDirect, class Call>
[[gnu::noinline]] Answer call_directly_slowly(PathAt at, CallKind kind, TryDirect try_direct,
                                              Call call) {
  Answer answer = failure<Answer>();
  if (try_direct(at.path, answer)) return answer;
  // try_direct() answers only for paths of the mount. If `at.path` is a default path, call it again with the
  // routed path.
  const bool is_in_view = direct::rest_in_view(at.path) != nullptr;
  return call_routed(at, kind, [&](const char* path) {
    return path != at.path && !is_in_view && try_direct(path, answer) ? answer : call(path);
  });
}

// Like call_routed(), but calls try_direct(path, answer), a function of direct.h, before call(path).
template <class TryDirect, class Call>
auto call_directly(PathAt at, CallKind kind, TryDirect try_direct, Call call) {
  if (!runtime::may_match(at.path)) [[likely]]
    return call(at.path);
  return call_directly_slowly<decltype(call(at.path))>(at, kind, try_direct, call);
}

}  // namespace cacheshim
