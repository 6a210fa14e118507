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

// The data of this process's view for direct opens: the daemon's filter and state in shared memory,
// and the base's path.
namespace cacheshim::direct {

struct View {
  FilterView filter;
  NameRules rules;
  const std::uint32_t* alive = nullptr;
  const std::uint64_t* base_changes = nullptr;
  CounterSlot* counters = nullptr;
  std::uint64_t device = 0;       // st_dev of the mount's files
  // of the base's files, and the bits that distinguish them on their device
  std::uint64_t base_device = 0;
  std::uint64_t base_mount = 0;
  uid_t uid = 0;  // the owner of the files that the view shows
  gid_t gid = 0;
  char base[512] = {};  // the path of the base's directory
  std::size_t base_length = 0;

  bool is_alive() const { return cacheshim::is_alive(alive); }
  bool is_current() const { return is_alive() && !filter.is_retired(); }
  void count_open() const;
  void count_look() const;
  // Whether the base's path still leads to the base. Leaves errno alone.
  bool is_base_in_sight() const;
  // Prefetches the counters. Call before the system call that is counted afterwards.
  void fetch_counters() const;
};

// Returns the current view, or null if nothing may be served directly. The result stays mapped and
// unchanged forever. Async-signal-safe; leaves errno alone. The first call maps the view; after a
// failure, following calls do not retry at once.
const View* current_view();
// Returns the last view, current or not, for descriptors that were opened in it; null if there was
// none.
const View* last_view();

// Sets XDG_RUNTIME_DIR, where a daemon without root has its run directory. Call once, before all
// others.
void set_user_run_base(std::string_view path);

// Call when the process changes its identity: its permissions must be checked again.
void forget_view();
// Call before the process changes its mounts, so that paths may lead elsewhere: direct answers end
// for good.
void give_up();
// Call before the process installs a system call filter: direct answers end, and descriptors are no
// longer checked.
void give_up_for_filter();

}  // namespace cacheshim::direct
