// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include "common/unique_fd.h"
#include "store/overlay/origin_log.h"
#include "store/sys/sys.h"

// The argument and result types of Overlay.
namespace cacheshim {

struct Found {
  struct stat st;
  bool in_upper;  // whether the layer, and not a lower, has the object
  // For a copy: the lower's object that was copied. The view shows the copy with that object's
  // inode number.
  std::optional<OriginLog::Origin> origin = std::nullopt;
  UniqueFd lock = UniqueFd();  // for a lock file (LockFiles): its O_PATH descriptor
};

struct Opened {
  UniqueFd fd;
  bool in_upper;
  bool is_lock = false;  // belongs to the base and is never copied up (LockFiles)
  off_t most_bytes = 0;  // the maximum size of a lock file; 0 for other files
  bool is_new_copy = false;  // this open has copied the file up
};

// Where the object behind a name is.
enum class Where { kUpper, kIndex, kLowers, kLock };
struct Located {
  struct stat st;
  Where where;      // kIndex: the base has the name, and LinkIndex has a copy of its file
  std::string key;  // the file's key in LinkIndex; empty if none was needed
  UniqueFd lock;    // kLock: the lock file's O_PATH descriptor

  bool in_upper() const { return where == Where::kUpper || where == Where::kIndex; }
};

using ListedEntry = sys::DirEntry;

// How the caller of a change to names holds Overlay::mutex(). With kShared, a change that needs the
// mutex held exclusively fails with kNeedsExclusive and has no effect.
enum class Hold { kShared, kExclusive };
inline constexpr int kNeedsExclusive = EDEADLK;

struct OverlayOptions {
  // Whether copy-up keeps owners, ACLs and file capabilities. find() counts the links of directories only if this is
  // set.
  bool keep_owner = false;
  // Whether the base belongs to a store, whose records no view shows.
  bool has_store_records = true;
};

// The steps of a copy-up.
enum class CopyUpStep {
  kBegun,    // an empty file is in the work directory
  kFilled,   // the copy has all data
  kIndexed,  // LinkIndex has the copy, if the file has other names
  kNamed,    // the copy has its name in the layer
};

// Receives notifications of copy-ups and of names that the layer shadows. Its functions must not call
// the overlay.
class OverlayObserver {
 public:
  // The object at `path` is now the layer's own copy, `upper`. Its ctime has changed, and perhaps its st_nlink.
  // Overlay::mutex() is held exclusively.
  virtual void copied_up(const std::string& path, const struct stat& upper) = 0;
  // A copy has received its name in the layer's directory `path`. The directory keeps its atime and mtime, but its
  // ctime has changed. Overlay::mutex() is held exclusively.
  virtual void copied_into(const std::string& /*path*/, const struct stat& /*before*/,
                           const struct stat& /*after*/) {}
  // The layer is about to get or to hide `path`, or load_layer() has found that the layer already has or hides it.
  // From now on, the layer hides the lowers' object at `path` and, if `tree`, everything below it. Called
  // with Overlay::mutex() held, before the change is visible, and even if the change then fails.
  virtual void shadows(const std::string& /*path*/, bool /*tree*/) {}
  // The layer is about to get `names` objects and `bytes` bytes of data. If this function returns an error, the change
  // has no effect and returns the error. Called with or without Overlay::mutex() held.
  virtual Status grow(std::uint64_t /*bytes*/, std::uint64_t /*names*/) { return {}; }
  // A copy-up has reached this step; an error aborts it. Tests use this to stop, fail or kill a
  // copy-up.
  virtual Status at_step(CopyUpStep) { return {}; }

 protected:
  ~OverlayObserver() = default;
};

}  // namespace cacheshim
