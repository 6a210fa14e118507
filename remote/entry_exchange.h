// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "remote/entry_object.h"
#include "remote/helper_process.h"
#include "remote/settings.h"
#include "remote/signing_keys.h"
#include "store/base/store.h"
#include "store/profiles/entry_map.h"
#include "store/publish/publisher.h"

// Entries of a store as objects of the remote tier, independent of the engine.
namespace cacheshim::remote {

struct ExchangeKeys {
  std::optional<SecretKey> signing;  // empty: nothing is pushed
  std::vector<PublicKey> allowed;    // whose entries are accepted, including those of `signing`
};
// Reads the keys that the settings name.
std::variant<ExchangeKeys, RemoteError> load_keys(const Settings& settings);

// Whether entries of this unit may leave this machine, and may come from others: only those of a profile that may be
// published early (docs/profiles.md), and not files of class `shared`, which change.
bool is_exchanged(const EntryMap& entries, std::string_view unit);

// Returns the object of a unit of the base. `build_ms`: how long its build took; 0: unknown.
std::variant<std::string, ObjectError> pack_unit(const Store& store, const EntryMap& entries,
                                                 const std::string& unit, std::uint64_t build_ms,
                                                 const SecretKey& key, const Settings& settings);

enum class Adoption {
  kAdopted,    // the base now has the entry
  kPresent,    // the base had it already
  kUntrusted,  // unknown signer or wrong signature; another unit or generation than asked for
  kDamaged,    // corrupt, too large, or not valid in this store
  kFailed,     // this machine could not write it
};
struct AdoptionResult {
  Adoption outcome;
  std::string why;                 // one line; "" for kAdopted and kPresent
  std::vector<std::string> paths;  // kAdopted: the files that were added
};
// Verifies an object that the engine returned for `unit`, and adds its entry to the base. Thread-safe.
AdoptionResult adopt_object(const Store& store, Publisher& publisher, const EntryMap& entries,
                            const std::string& unit, std::string_view object,
                            const ExchangeKeys& keys, const Settings& settings);

// Verifies an object as adopt_object() does, and adds nothing. Returns "" or what is wrong.
std::string fault_of_object(const EntryMap& entries, const std::string& unit,
                            std::string_view object, const ExchangeKeys& keys,
                            const Settings& settings);

}  // namespace cacheshim::remote
