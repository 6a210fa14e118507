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
  // st_dev and mount of the base's files; both together identify them
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
  // Whether the base's path still leads to the base. Leaves errno unchanged.
  bool is_base_in_sight() const;
  // Prefetches the counters. Call before the system call that count_look() counts.
  void fetch_counters() const;
};

// Returns the current view, or null if no call may be answered directly. The result stays mapped
// and unchanged forever. Async-signal-safe; leaves errno unchanged. The first call maps the view.
// After a failure, the following calls do not try again at once.
const View* current_view();
// Returns the last view, current or not; null if there was none. For descriptors that were opened
// in it.
const View* last_view();

// Sets the directory (XDG_RUNTIME_DIR) that contains the run directory of a daemon without root.
// Call once, before all other functions.
void set_user_run_base(std::string_view path);

// Call when the process changes its identity, because its permissions must then be checked again.
void forget_view();
// Call before the process changes its mounts, after which paths may lead elsewhere. Direct answers
// end for good.
void give_up();
// Call before the process installs a system call filter. Direct answers end, and descriptors are no
// longer checked.
void give_up_for_filter();

}  // namespace cacheshim::direct
