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

// What this process knows of its own view for direct opens: the daemon's filter and state in shared
// memory, and where the base is.
namespace cacheshim::direct {

struct View {
  FilterView filter;
  NameRules rules;
  const std::uint32_t* alive = nullptr;
  const std::uint64_t* base_changes = nullptr;
  CounterSlot* counters = nullptr;
  std::uint64_t device = 0;       // st_dev of the mount's files
  std::uint64_t base_device = 0;  // of the base's, and what tells those from others of their device
  std::uint64_t base_mount = 0;
  uid_t uid = 0;  // whose files the view shows
  gid_t gid = 0;
  char base[512] = {};  // the path of the base's directory
  std::size_t base_length = 0;

  bool is_alive() const { return cacheshim::is_alive(alive); }
  bool is_current() const { return is_alive() && !filter.is_retired(); }
  void count_open() const;
  void count_look() const;
  // Whether the base's path still leads to the base. errno stays.
  bool is_base_in_sight() const;
  // To be called before the system call that is then counted: it waits for memory otherwise.
  void fetch_counters() const;
};

// The view as it is now, or null where nothing is to be served directly. What it returns stays
// mapped and unchanged for ever. Async-signal-safe; errno stays. Mapped at the first call that asks
// for it; one that fails is not repeated by each call that follows.
const View* current_view();
// The last view there was, current or not, for descriptors that were opened of it; null: never one.
const View* last_view();

// XDG_RUNTIME_DIR, where a daemon without root's rights has its run directory. Before all others,
// once.
void set_user_run_base(std::string_view path);

// The process has changed who it is: what it may see is to be found out anew.
void forget_view();
// It is about to see other mounts, so that a path may lead elsewhere: from now on nothing is
// served.
void give_up();
// It is about to be stopped from making some calls, by its own filter: nor is a descriptor looked
// at any more.
void give_up_for_filter();

}  // namespace cacheshim::direct
