// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "remote/settings.h"

// The keys of the objects in the engine. Each key contains the generation of its object. All functions are thread-safe.
namespace cacheshim::remote {

// The key of an entry's object. `unit`: EntryRef::unit().
std::string object_key(const Settings& settings, std::string_view unit);
// Returns the unit of a key; nothing for a key of another generation or kind.
std::optional<std::string> unit_of_key(const Settings& settings, std::string_view key);

// The key of a pack. `pack`: "<uid>/<name of the jobs>", so that users have separate packs.
std::string pack_key(const Settings& settings, std::string_view pack);
// Returns the pack of a key; nothing for a key of another generation or kind.
std::optional<std::string> pack_of_key(const Settings& settings, std::string_view key);

}  // namespace cacheshim::remote
