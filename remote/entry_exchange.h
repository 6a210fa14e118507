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

// Makes objects of the remote tier from entries of a store, and adds the entries of objects to a store. Does not access
// the engine.
namespace cacheshim::remote {

struct ExchangeKeys {
  std::optional<SecretKey> signing;  // empty: nothing is pushed
  std::vector<PublicKey> allowed;    // the keys whose entries are accepted, with that of `signing`
};
// Reads the keys that the settings name.
std::variant<ExchangeKeys, RemoteError> load_keys(const Settings& settings);

// Returns whether machines may exchange this unit. They exchange only units of a profile that may be published early
// (docs/profiles.md), and no files of class `shared`, because those change.
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

// Verifies an object with open_object(), which does not decompress the archive. Returns "", or a text that says what is
// wrong.
std::string fault_of_object(const EntryMap& entries, const std::string& unit,
                            std::string_view object, const ExchangeKeys& keys,
                            const Settings& settings);

}  // namespace cacheshim::remote
