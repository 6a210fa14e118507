// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/locks/lock_files.h"
#include "store/overlay/overlay.h"
#include "store/overlay/overlay_types.h"

// Changes to lock files' names. Lock files are in the base; the other files that a job writes are in
// the job's layer. So a file moves between base and layer if a rename or link gives it the name of a
// lock file, or gives a lock file any other name.
namespace cacheshim {

// Whether a lock file of the base is visible at `path`. Does not need Overlay::mutex().
bool is_shared_lock(const Overlay& overlay, const std::string& path);
// Creates and opens a lock file. If the file exists and `flags` lack O_EXCL, opens the existing
// file. Requires: LockFiles::is_shared_name(path). Errors: EEXIST, also for an object that is not a
// regular file.
Result<LockFiles::Made> create_lock(Overlay& overlay, const std::string& path, int flags)
    REQUIRES_SHARED(overlay.mutex());
// Returns the base's file that stands in for the file at `path` when a job locks it
// (NamedLockFiles::open()). If there is none and `makes` is true, creates it with the directories
// above it. Errors: those of NamedLockFiles::open(); EACCES if a directory to be created is closed
// to other users in the view: the daemon would create it open, and all users could read what the
// job publishes in it.
Result<UniqueFd> open_named_lock(const Overlay& overlay, const std::string& path, bool makes)
    REQUIRES_SHARED(overlay.mutex());
// Hides the lock file from the view (HiddenLocks::hide()).
void hide_lock(Overlay& overlay, const std::string& path);

// ---- Only for store/overlay/: renames and links by which a file becomes a lock file, or ceases to
// be one

// Errors: EXDEV if the rename is impossible, so that mv(1) and similar programs copy the file.
Status rename_common(Overlay& overlay, const std::string& from, const Located& source,
                     const std::string& to, const Result<Located>& target, unsigned flags,
                     UniqueFd* new_lock) REQUIRES_SHARED(overlay.mutex());
Status link_common(Overlay& overlay, const std::string& path, const std::string& new_path)
    REQUIRES_SHARED(overlay.mutex());
Status link_into_base(Overlay& overlay, int object, const std::string& new_path)
    REQUIRES_SHARED(overlay.mutex());

}  // namespace cacheshim
