// SPDX-License-Identifier: Apache-2.0
#include "store/threads/lock_ranks.h"

#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace cacheshim {
namespace {

constexpr std::array kRankNames = {
    "a pack",
    "the end of a job",
    "a listing",
    "a shared file",
    "a unit being staged",
    "a unit being published",
    "closing",
    "LeaseTable",
    "JobTable",
    "Overlay",
    "SilentGrowth",
    "removals",
    "lock cycles",
    "NamedLocks",
    "LockQueue",
    "LockTable",
    "JobViews",
    "OriginLog's file",
    "IoModes",
    "ViewFilter",
    "NodeTable",
    "PendingUnlinks",
    "Ticker",
    "FairQueue",
    "NotificationQueue",
    "RemoteExchange",
    "a leaf",
};
static_assert(kRankNames.size() == static_cast<std::size_t>(LockRank::kLeaf) + 1);

const char* name_of(LockRank rank) { return kRankNames[static_cast<std::size_t>(rank)]; }

struct Held {
  const void* lock;
  LockRank rank;
};

constexpr std::size_t kMostHeld = 32;
// The first `count` elements are in use, in the order in which the locks were taken.
thread_local std::array<Held, kMostHeld> held;
thread_local std::size_t count = 0;

[[noreturn]] void fail(const char* what, const char* name) {
  std::fprintf(stderr, "lock order: %s %s; the thread holds:", what, name);
  for (std::size_t i = 0; i < count; ++i) std::fprintf(stderr, " [%s]", name_of(held[i].rank));
  std::fprintf(stderr, " (see store/threads/lock_ranks.h)\n");
  std::array<void*, 64> frames;
  const int depth = ::backtrace(frames.data(), frames.size());
  ::backtrace_symbols_fd(frames.data(), depth, STDERR_FILENO);
  std::abort();
}

}  // namespace

void held_locks::add(const void* lock, LockRank rank) {
  const bool is_out_of_order =
      std::any_of(held.begin(), held.begin() + count,
                  [&](const Held& one) { return one.lock == lock || one.rank >= rank; });
  if (is_out_of_order) fail("must not take", name_of(rank));
  add_unchecked(lock, rank);
}

void held_locks::add_unchecked(const void* lock, LockRank rank) {
  if (count == kMostHeld) fail("too many locks to take", name_of(rank));
  held[count++] = {lock, rank};
}

void held_locks::remove(const void* lock) {
  auto* const end = held.begin() + count;
  auto* const found =
      std::find_if(held.begin(), end, [&](const Held& one) { return one.lock == lock; });
  if (found == end) return;
  std::move(found + 1, end, found);
  --count;
}

void held_locks::require(const void* lock, LockRank rank) {
  const bool is_held = std::any_of(held.begin(), held.begin() + count,
                                   [&](const Held& one) { return one.lock == lock; });
  if (!is_held) fail("must hold", name_of(rank));
}

void held_locks::require_none() {
  if (count != 0) fail("must not hold", "a lock across a reply");
}

}  // namespace cacheshim
