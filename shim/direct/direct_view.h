// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/direct_filter.h"
#include "common/direct_page.h"
#include "common/name_rules.h"
#include "shim/routing/router.h"

// The data with which a process answers calls on its view from the base: the daemon's filter and state in shared
// memory, and the base's path.
namespace cacheshim::direct {

struct View {
  FilterView filter;
  NameRules rules;
  const std::uint32_t* alive = nullptr;
  const std::uint64_t* base_changes = nullptr;
  CounterSlot* counters = nullptr;
  std::uint64_t* used_names =
      nullptr;                    // used_names.h; null if the daemon does not record the used names
  std::uint64_t device = 0;       // st_dev of the mount's files
  // st_dev and mount ID of the base's files; no file outside the base has both
  std::uint64_t base_device = 0;
  std::uint64_t base_mount = 0;
  bool is_base_local = true;  // whether the base may answer for absent names and listings
  // The owner and the group that the view shows for the files of the base.
  uid_t uid = 0;
  gid_t gid = 0;
  char base[512] = {};  // the read-only mount of the base, in the run directory
  std::size_t base_length = 0;

  bool is_alive() const { return cacheshim::is_alive(alive); }
  bool is_current() const { return is_alive() && !filter.is_retired(); }
  void count_open() const;
  void count_lookup() const;
  // Whether the base's path still leads to the base. Leaves errno unchanged.
  bool is_base_in_sight() const;
  // Prefetches the counters. Call before the system call that count_lookup() counts.
  void fetch_counters() const;
};

// Returns the current view, or null if no call may be answered directly. The result stays mapped and unchanged forever.
// Async-signal-safe; leaves errno unchanged. The first call maps the view. If an attempt to map it fails, the following
// calls return null without an attempt: one call after the first failure, and twice as many after each later failure,
// up to 1024.
const View* current_view();
// Returns the most recent view, even if it is no longer current; null if there was none, or after
// give_up_for_filter(). Use it for descriptors that were opened directly.
const View* last_view();

// Sets the directory that contains the run directory of the user's own daemon (user_run_base()).
// Call once, before all other functions.
void set_user_run_base(std::string_view path);

// Call when the process changes its user ID, because its permissions must then be checked again.
void forget_view();
// Ends direct answers for good. Call before the process changes its mounts, because paths may lead
// elsewhere afterwards.
void give_up();
// As give_up(); last_view() then also returns null, so that no hook calls statx to check a descriptor. Call before the
// process installs a system call filter, which may forbid statx.
void give_up_for_filter();

}  // namespace cacheshim::direct
