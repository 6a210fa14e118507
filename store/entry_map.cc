// SPDX-License-Identifier: Apache-2.0
#include "store/entry_map.h"

namespace cacheshim {

const Profile* EntryMap::find_profile(std::string_view name) const {
  for (const Profile& profile : profiles_) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::optional<EntryRef> EntryMap::find(std::string_view path) const {
  auto end = path.find('/');
  const Profile* profile = find_profile(path.substr(0, end));
  if (profile == nullptr) return std::nullopt;
  for (unsigned level = 0; level < profile->entry_depth; ++level) {
    if (end == std::string_view::npos) return std::nullopt;
    end = path.find('/', end + 1);
  }
  EntryRef ref{profile, path.substr(0, end), {}};
  if (end != std::string_view::npos) ref.rest = path.substr(end + 1);
  return ref;
}

bool EntryMap::is_scratch(const EntryRef& ref) {
  std::string_view rest = ref.rest;
  while (!rest.empty()) {
    const auto end = rest.find('/');
    if (ref.profile->is_scratch(rest.substr(0, end))) return true;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace cacheshim
