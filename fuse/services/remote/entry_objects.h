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

// Converts between entries of the base and the objects that machines exchange. All functions are thread-safe.
namespace cacheshim {

struct Exchange {  // all must outlive the functions' calls
  const RemoteParts& parts;
  const remote::Settings& settings;
  const remote::ExchangeKeys& keys;
};

// Verifies `object`, which must contain `unit`, and adds the entry to the base. Counts failures (remote_errors,
// remote_untrusted).
remote::AdoptionResult add_object(const Exchange& exchange, const std::string& unit,
                                  std::string_view object);

// Returns a sealed file with the unit's object. If it cannot make the object, for example because the unit was evicted,
// logs why and returns an empty descriptor. Requires: keys.signing.
UniqueFd make_unit_object(const Exchange& exchange, const std::string& unit);

// Returns a sealed file with a pack of the objects of these units, or an empty descriptor if no unit has an object.
// Leaves out units that exceed the pack's limits. Once `is_wanted` returns false, stops and returns an empty
// descriptor. Requires: keys.signing.
UniqueFd make_pack(const Exchange& exchange, const std::vector<std::string>& units,
                   const IsWanted& is_wanted);

}  // namespace cacheshim
