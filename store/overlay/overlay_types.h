// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <string>

#include "common/unique_fd.h"
#include "store/overlay/origin_log.h"
#include "store/sys/sys.h"

// What an Overlay gives and takes.
namespace cacheshim {

struct Found {
  struct stat st;
  bool in_upper;  // the layer has the object, and not a lower
  // For a copy: the object of a lower whose inode number the copy is shown with.
  std::optional<OriginLog::Origin> origin = std::nullopt;
  UniqueFd lock = UniqueFd();  // of a lock file (LockFiles): an O_PATH descriptor of it
};

struct Opened {
  UniqueFd fd;
  bool in_upper;
  bool is_lock = false;  // the base's own, to be changed in place (LockFiles)
  off_t most_bytes = 0;  // then: how far it may grow
};

using ListedEntry = sys::DirEntry;

// How Overlay::mutex() is held by who changes names. Shared, a change that would need more than that
// fails with kNeedsExclusive, and nothing has happened.
enum class Hold { kShared, kExclusive };
inline constexpr int kNeedsExclusive = EDEADLK;

struct OverlayOptions {
  // Copy-up keeps owners, ACLs and file capabilities.
  bool keep_owner = false;
  // The base is a store's, whose records no view shows.
  bool has_store_records = true;
};

// Where a copy-up stands.
enum class CopyUpStep {
  kBegun,    // an empty file is in the work folder
  kFilled,   // the copy is whole
  kIndexed,  // and on record, if the file has other names
  kNamed,    // and has taken its name in the layer
};

// Told of files whose data move. Must not call back.
class OverlayObserver {
 public:
  // The regular file at `path` is now the layer's own copy, `upper`. Overlay::mutex() is held
  // exclusively.
  virtual void copied_up(const std::string& path, const struct stat& upper) = 0;
  // The layer is about to have or to hide `path`, or has it (while it is taken up): what the lowers have
  // there does not count from now on, nor, if `tree`, what they have below it. Told before anything of
  // it can be seen, and maybe for nothing; with Overlay::mutex() held.
  virtual void shadows(const std::string& /*path*/, bool /*tree*/) {}
  // A copy-up has come to this step; an error ends it there. For tests, which stop, fail or kill it.
  virtual Status at_step(CopyUpStep) { return {}; }

 protected:
  ~OverlayObserver() = default;
};

}  // namespace cacheshim
