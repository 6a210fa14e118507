// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "store/profile.h"

// Which entry, of which cache family, a path of the store belongs to.
namespace cacheshim {

struct EntryRef {
  const Profile* profile;
  std::string_view entry;  // path of the entry's folder: "triton/KEY"
  std::string_view rest;   // what follows within it: "tmp.pid_7/x.cubin"; empty for the folder
};

class EntryMap {
 public:
  // `profiles` must outlive the map.
  explicit EntryMap(const std::vector<Profile>& profiles) : profiles_(profiles) {}

  const std::vector<Profile>& profiles() const { return profiles_; }
  const Profile* find_profile(std::string_view name) const;
  // Nothing for a path of an unknown family or above the level of its entries. The views point into
  // `path`, which is relative to the store.
  std::optional<EntryRef> find(std::string_view path) const;
  // Whether any component of `rest` is a scratch name of the profile.
  static bool is_scratch(const EntryRef& ref);

 private:
  const std::vector<Profile>& profiles_;
};

}  // namespace cacheshim
