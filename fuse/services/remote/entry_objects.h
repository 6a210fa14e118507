// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/services/remote/make_remote_entries.h"
#include "remote/settings.h"
#include "remote/signing_keys.h"

// The objects that a machine sends to the engine. All functions are thread-safe.
namespace cacheshim {

struct ObjectMaker {  // all must outlive the functions' calls
  const RemoteParts& parts;
  const remote::Settings& settings;
  const remote::SecretKey& key;
};

// Returns a sealed file with the unit's object; an empty descriptor if there can be none, for example because the unit
// was evicted. Logs why.
UniqueFd make_unit_object(const ObjectMaker& maker, const std::string& unit);

// Decides which units the next pack contains: nothing if the previous one is still right. `used`: the units that the job
// has used, sorted. `previous`: those of the pack that the job's start found, sorted. The new pack keeps the units that
// this job has not used, because other machines of the job, or its next attempt, may use them; but after a success, only
// until they are more than half of the pack.
std::optional<std::vector<std::string>> choose_packed(const std::vector<std::string>& used,
                                                      const std::vector<std::string>& previous,
                                                      bool has_succeeded);

// Returns a sealed file with a pack of the objects of these units; an empty descriptor if no unit has an object. Leaves
// out units that exceed the pack's limits. Once `is_wanted` returns false, stops and returns an empty descriptor.
UniqueFd make_pack(const ObjectMaker& maker, const std::vector<std::string>& units,
                   const std::function<bool()>& is_wanted);

}  // namespace cacheshim
