// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/services/remote/make_remote_entries.h"
#include "remote/entry_exchange.h"
#include "remote/settings.h"
#include "store/threads/slices.h"

// Entries of the base as the objects that machines exchange. All functions are thread-safe.
namespace cacheshim {

struct Exchange {  // all must outlive the functions' calls
  const RemoteParts& parts;
  const remote::Settings& settings;
  const remote::ExchangeKeys& keys;
};

// Verifies an object, adds its entry to the base, and counts a failure.
remote::AdoptionResult add_object(const Exchange& exchange, const std::string& unit,
                                  std::string_view object);

// Returns a sealed file with the unit's object; an empty descriptor if there can be none, for example because the unit
// was evicted. Logs why. Requires: keys.signing.
UniqueFd make_unit_object(const Exchange& exchange, const std::string& unit);

// Returns a sealed file with a pack of the objects of these units; an empty descriptor if no unit has an object. Leaves
// out units that exceed the pack's limits. Once `is_wanted` returns false, stops and returns an empty descriptor.
// Requires: keys.signing.
UniqueFd make_pack(const Exchange& exchange, const std::vector<std::string>& units,
                   const IsWanted& is_wanted);

}  // namespace cacheshim
