// SPDX-License-Identifier: Apache-2.0
#include "shim/plain_libc.h"

#include <cstring>

#include "shim/routing/routed_call.h"

#include "shim/routing/prefix_swap.h"

// Functions that choose a name and write it into the application's template. The hook routes the template into a
// buffer, libc fills the buffer, and the hook copies the six chosen characters back. So the application sees its own
// path, whether the call succeeds or fails.
//
// tmpfile, tmpnam and tmpnam_r use only /tmp, so they have no hooks.

using cacheshim::CallKind;
using cacheshim::PathBuffer;
using cacheshim::RoutedPath;
namespace real = cacheshim::real;
namespace runtime = cacheshim::runtime;

namespace {

constexpr std::size_t kChosen = 6;  // the length of XXXXXX

void copy_chosen(char* text, const char* filled, std::size_t suffix) {
  const std::size_t length = std::strlen(text);
  const std::size_t filled_length = std::strlen(filled);
  if (length < kChosen + suffix || filled_length < kChosen + suffix) return;
  std::memcpy(text + length - suffix - kChosen, filled + filled_length - suffix - kChosen, kChosen);
}

// Restores the template for another attempt.
void forget_chosen(char* filled, std::size_t suffix) {
  const std::size_t length = std::strlen(filled);
  if (length >= kChosen + suffix) std::memset(filled + length - suffix - kChosen, 'X', kChosen);
}

// Calls call(template) with a routed copy of the template `text`, and copies the chosen characters back. `suffix`: the
// number of characters after the XXXXXX. Requires: `call` returns -1 or null on failure.
template <class Call>
auto fill_template(char* text, int suffix, Call call) {
  if (!runtime::may_match(text) || suffix < 0) [[likely]]
    return call(text);
  return cacheshim::call_routed({AT_FDCWD, text}, CallKind::kCreate, [=](const char* path) {
    if (path == text) return call(text);
    char* const filled = const_cast<char*>(path);  // the path is in call_routed()'s buffer
    const auto result = call(filled);
    copy_chosen(text, filled, static_cast<std::size_t>(suffix));
    if (result == cacheshim::failure<decltype(call(text))>()) {
      forget_chosen(filled, static_cast<std::size_t>(suffix));
    }
    return result;
  });
}

}  // namespace

CACHESHIM_EXPORT int mkstemp(char* text) {
  return fill_template(text, 0, [](char* t) { return real::mkstemp(t); });
}

CACHESHIM_EXPORT int mkstemp64(char* text) {
  return fill_template(text, 0, [](char* t) { return real::mkstemp64(t); });
}

CACHESHIM_EXPORT int mkostemp(char* text, int flags) {
  return fill_template(text, 0, [=](char* t) { return real::mkostemp(t, flags); });
}

CACHESHIM_EXPORT int mkostemp64(char* text, int flags) {
  return fill_template(text, 0, [=](char* t) { return real::mkostemp64(t, flags); });
}

CACHESHIM_EXPORT int mkstemps(char* text, int suffix) {
  return fill_template(text, suffix, [=](char* t) { return real::mkstemps(t, suffix); });
}

CACHESHIM_EXPORT int mkstemps64(char* text, int suffix) {
  return fill_template(text, suffix, [=](char* t) { return real::mkstemps64(t, suffix); });
}

CACHESHIM_EXPORT int mkostemps(char* text, int suffix, int flags) {
  return fill_template(text, suffix, [=](char* t) { return real::mkostemps(t, suffix, flags); });
}

CACHESHIM_EXPORT int mkostemps64(char* text, int suffix, int flags) {
  return fill_template(text, suffix, [=](char* t) { return real::mkostemps64(t, suffix, flags); });
}

CACHESHIM_EXPORT char* mkdtemp(char* text) noexcept {
  const char* const made = fill_template(text, 0, [](char* t) { return real::mkdtemp(t); });
  return made == nullptr ? nullptr : text;
}

// On failure, the template becomes an empty string.
CACHESHIM_EXPORT char* mktemp(char* text) noexcept {
  if (!runtime::may_match(text)) return real::mktemp(text);
  const char* const made = fill_template(text, 0, [](char* t) {
    const char* const name = real::mktemp(t);
    return name == nullptr || *name == '\0' ? nullptr : name;
  });
  if (made == nullptr) *text = '\0';
  return text;
}

// TMPDIR takes precedence over `directory`, as in libc. If TMPDIR is not routed, libc itself uses
// TMPDIR, and uses the routed `directory` only if TMPDIR is unusable.
CACHESHIM_EXPORT char* tempnam(const char* directory, const char* prefix) noexcept {
  const char* first = ::secure_getenv("TMPDIR");
  if (first == nullptr || *first == '\0' || !runtime::may_match(first)) first = directory;
  if (!runtime::may_match(first)) return real::tempnam(directory, prefix);
  const int entry_errno = errno;
  PathBuffer buffer;
  const RoutedPath routed = runtime::route({AT_FDCWD, first}, buffer);
  const bool moved = routed.path != first && routed.from_length != 0;
  int own_errno = 0;
  auto once = [&] { return real::tempnam(moved ? routed.path : directory, prefix); };
  char* const name = cacheshim::call_with_own_errno(entry_errno, own_errno, once);
  if (name == nullptr || !moved) return name;
  return cacheshim::PrefixSwap(first, routed).restore_allocated(name);
}
