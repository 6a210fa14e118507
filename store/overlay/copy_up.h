// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/overlay/overlay.h"
#include "store/overlay/overlay_types.h"
#include "store/overlay/staged_copies.h"
#include "store/sys/copy_file.h"

// Copy-up. A copy is completed in the work directory and then gets its name in the layer by one
// rename(2). If the daemon crashes before the rename, the base's object stays visible, and
// load_layer() removes the incomplete copy.
//
// A file's data may be copied earlier, without the overlay's mutex (prepare_copy_up()).
// StagedCopies keeps this copy, with the size and mtime that the base file had. The change that
// needs the copy stats the base file again under the mutex, and uses the copy only if size and mtime
// are the same.
namespace cacheshim {

// Call without the mutex before a change that copies up `path`. Copies the regular file, or all
// regular files below the directory, into the work directory. The change then uses these copies; it
// makes a copy itself if one is missing or out of date. If several requests need the same copy at
// the same time, one request makes it; if that request fails, all fail. Keep the result until the
// change is done. Errors: those of copying, such as ENOSPC; no incomplete copy remains.
Result<PreparedCopies> prepare_copy_up(Overlay& overlay, const std::string& path,
                                       off_t keep_bytes = kWholeFile) EXCLUDES(overlay.mutex());
// Ensures that the layer has the object at `path`; for a file, with at least the first `keep_bytes`
// of its data. Does nothing for a lock file of the base. Atomic: the copy is staged in the work
// directory and then renamed. Errors: EBADF without a layer, ENOSPC; no incomplete copy remains.
Status copy_up(Overlay& overlay, const std::string& path, off_t keep_bytes = kWholeFile)
    REQUIRES_SHARED(overlay.mutex());
// Copies a regular file up and opens the copy for writing; with O_TRUNC in `flags`, does not copy the
// data. Opens a lock file of the base in the base, without a copy.
Result<UniqueFd> open_writable(Overlay& overlay, const std::string& path, int flags)
    REQUIRES(overlay.mutex());
// As open_writable(), for the object `found`, which the caller obtained from locate(path) while holding the mutex.
Result<UniqueFd> open_writable_found(Overlay& overlay, const std::string& path,
                                     const Located& found, int flags) REQUIRES(overlay.mutex());
// Copies `object`, an O_PATH descriptor of a base object that has lost its name in this view.
// Returns an O_PATH descriptor of the copy, which has no name and can be changed. Does not copy the
// contents of a directory. Requires: a layer.
Result<UniqueFd> copy_nameless(Overlay& overlay, int object) REQUIRES(overlay.mutex());

// ---- For the functions of store/overlay/

// As copy_up(), for the object that locate() has found at `path`. Does not copy the contents of a
// directory.
Status copy_up_found(Overlay& overlay, const std::string& path, const Located& found,
                     off_t keep_bytes) REQUIRES_SHARED(overlay.mutex());
// Copies `path`, a merged directory, with its contents into the layer. The copy becomes opaque.
Status copy_up_tree(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
// ensure_directory() ensures that the layer has the directory `path`; ensure_upper_dir() also opens
// the directory. open_upper_parent() does both for the directory above `path`. Errors: EBADF without a
// layer; ELOOP or ENOTDIR if the view shows a symlink or another object there.
Status ensure_directory(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
Result<UniqueFd> ensure_upper_dir(Overlay& overlay, const std::string& path)
    REQUIRES_SHARED(overlay.mutex());
Result<UniqueFd> open_upper_parent(Overlay& overlay, const std::string& path)
    REQUIRES_SHARED(overlay.mutex());
// Returns the key that the lowers' file at `path` has in LinkIndex.
Result<std::string> link_key(const Overlay& overlay, const std::string& path);

}  // namespace cacheshim
