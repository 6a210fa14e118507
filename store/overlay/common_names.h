// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/locks/lock_files.h"
#include "store/overlay/overlay.h"
#include "store/overlay/overlay_types.h"

// Names of lock files. Lock files are in the base and all other files in the layer. So an object
// moves from one to the other if a rename or link gives it the name of a lock file, or gives a lock
// file another name.
namespace cacheshim {

// Whether a lock file of the base is visible at `path`. Needs no lock.
bool is_shared_lock(const Overlay& overlay, const std::string& path);
// Creates and opens a lock file. If the file exists and `flags` lack O_EXCL, opens the existing
// file. Requires: LockFiles::is_shared_name(path). Errors: EEXIST, also for an object that is not a
// regular file.
Result<LockFiles::Made> create_lock(Overlay& overlay, const std::string& path, int flags)
    REQUIRES_SHARED(overlay.mutex());
// Returns the base's file that takes the locks of the file at `path` (NamedLockFiles::open());
// creates it if `makes`. Errors: those of NamedLockFiles::open(); and EACCES if the base lacks a directory
// above the file that the view closes to others. If the daemon created that directory, all users
// could read what the job publishes in it.
Result<UniqueFd> open_named_lock(const Overlay& overlay, const std::string& path, bool makes)
    REQUIRES_SHARED(overlay.mutex());
// Calls HiddenLocks::hide(). The view's listing of the directory then differs from the base's.
void hide_lock(Overlay& overlay, const std::string& path);

// ---- For the functions of store/overlay/: renames and links that make a file a lock file, or the
// reverse

// Returns EXDEV if mv(1) and similar programs should copy instead.
Status rename_common(Overlay& overlay, const std::string& from, const Located& source,
                     const std::string& to, const Result<Located>& target, unsigned flags,
                     UniqueFd* new_lock) REQUIRES_SHARED(overlay.mutex());
Status link_common(Overlay& overlay, const std::string& path, const std::string& new_path)
    REQUIRES_SHARED(overlay.mutex());
Status link_into_base(Overlay& overlay, int object, const std::string& new_path)
    REQUIRES_SHARED(overlay.mutex());

}  // namespace cacheshim
