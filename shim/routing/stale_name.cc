// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/stale_name.h"

#include <cstring>

#include "shim/direct/direct.h"
#include "shim/errno_guard.h"
#include "shim/real_function.h"

namespace cacheshim {
namespace {

std::size_t without_slashes(const char* path, std::size_t length) {
  while (length > 0 && path[length - 1] == '/') --length;
  return length;
}

// Shortens `path` to the part that must exist for a call of this kind.
void cut_to_needed(char* path, CallKind kind) {
  std::size_t length = without_slashes(path, std::strlen(path));
  if (kind == CallKind::kCreate) {
    while (length > 0 && path[length - 1] != '/') --length;
    length = without_slashes(path, length);
  }
  path[length] = '\0';
}

// Makes the kernel repeat the lookup of `path`. Returns true if the name exists. Calls link(2) with the mount's root as
// the old path, because link(2) always repeats the lookup of its new path (LOOKUP_EXCL) and never links a directory.
bool repeat_lookup(const char* path) {
  return real::linkat(AT_FDCWD, runtime::routes().mount().data(), AT_FDCWD, path, 0) != 0 &&
         errno == EEXIST;
}

}  // namespace

bool refresh_stale_name(const char* path, CallKind kind) {
  const ErrnoGuard errno_guard;
  const char* const rest = direct::rest_in_view(path);
  if (rest == nullptr) return false;
  PathBuffer needed;
  if (join_path(needed, {path}) == 0) return false;
  char* const rest_needed = needed.text + (rest - path);
  cut_to_needed(rest_needed, kind);
  if (*rest_needed == '\0' || !direct::has_name(rest_needed)) return false;
  for (char* at = rest_needed;; ++at) {
    at = std::strchr(at, '/');
    if (at != nullptr) *at = '\0';
    if (!repeat_lookup(needed.text)) return false;
    if (at == nullptr) return true;
    *at = '/';
  }
}

}  // namespace cacheshim
