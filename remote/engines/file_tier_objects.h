// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/unique_fd.h"
#include "remote/engines/file_tier_files.h"
#include "remote/engines/remote_tier.h"

// FileTier's objects: the files in objects/.
//
// The functions are thread-safe. Each makes one attempt. Errors: ESTALE or ENOENT if another machine has removed a file
// or directory meanwhile (the caller then repeats the call), those that a function states, and those of the system
// calls.
namespace cacheshim::remote::file_tier {

// Error codes of this engine. No system call on a regular file returns them, except EBADMSG if the file system itself
// is damaged.
constexpr int kDamaged = EBADMSG;
constexpr int kOtherKey = ENOTUNIQ;

// An open file: a header, then an object of `size_bytes`.
struct StoredObject {
  UniqueFd file;
  std::size_t header_bytes;
  std::size_t size_bytes;
};

// Opens the object of `key`. Errors: ENOENT if there is none, kOtherKey, kDamaged.
Result<StoredObject> open_object(const Root& root, const std::string& key);

// Returns nothing if the key is absent. Errors: EFBIG if the object has more than `most_bytes`, kDamaged.
Result<std::optional<std::string>> try_get(const Root& root, const std::string& key,
                                           std::size_t most_bytes);

// Stores the object if the key is absent. `tmp` is the open directory tmp/. Errors: kOtherKey, kDamaged. After other
// errors, the object may have been stored.
Result<PutOutcome> try_put(const Root& root, int tmp, const std::string& key,
                           std::string_view object);

// Returns false if the key is absent. Also removes a damaged object.
Result<bool> try_remove(const Root& root, const std::string& key);

}  // namespace cacheshim::remote::file_tier
