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
// rename(2). So after a crash at any time the base's object is visible, and load_layer() removes
// everything else.
//
// A file's data may be copied before, without the overlay's mutex (prepare_copy_up()): the copy
// waits in StagedCopies under the state of the base file that it was made of. The change that needs
// it checks the base again under the mutex, and finds the copy only if the file is still in that
// state.
namespace cacheshim {

// Call without the mutex before a change that copies up `path`; the result may be out of date by
// then. Copies large files, of a directory everything below it, into the work directory. The
// change then uses these copies, and makes those itself that are missing or out of date. One copy
// serves all concurrent requests, and all of them get its failure. Keep the result until the
// change is done. Errors: ENOSPC and others of copying (nothing kept).
Result<PreparedCopies> prepare_copy_up(Overlay& overlay, const std::string& path,
                                       off_t keep_bytes = kWholeFile) EXCLUDES(overlay.mutex());
// Ensures that the layer has the object at `path`; of a file, at least the first `keep_bytes` of
// its data. Atomic: the copy is staged in the work directory and then renamed. Errors: ENOSPC
// (nothing kept).
Status copy_up(Overlay& overlay, const std::string& path, off_t keep_bytes = kWholeFile)
    REQUIRES_SHARED(overlay.mutex());
// Copies a regular file up and opens it for writing. With O_TRUNC in `flags`, does not copy its
// data.
Result<UniqueFd> open_writable(Overlay& overlay, const std::string& path, int flags)
    REQUIRES(overlay.mutex());
// Copies an object of the base that has lost its name in this view; `object` is an O_PATH
// descriptor of it. Returns an O_PATH descriptor of the copy, which has no name and can be changed.
// Does not copy the contents of a directory.
Result<UniqueFd> copy_nameless(Overlay& overlay, int object) REQUIRES(overlay.mutex());

// ---- For the functions of store/overlay/

// As copy_up(), for the object that locate() has found at `path`. Does not copy the contents of a
// directory.
Status copy_up_found(Overlay& overlay, const std::string& path, const Located& found,
                     off_t keep_bytes) REQUIRES_SHARED(overlay.mutex());
// Copies `path`, a merged directory, with its contents into the layer, where it becomes opaque.
Status copy_up_tree(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
// ensure_directory() ensures that the layer has the directory `path`; ensure_upper_dir() also opens
// it. open_upper_parent() ensures and opens the directory above `path`. Errors: EBADF without a
// layer.
Status ensure_directory(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
Result<UniqueFd> ensure_upper_dir(Overlay& overlay, const std::string& path)
    REQUIRES_SHARED(overlay.mutex());
Result<UniqueFd> open_upper_parent(Overlay& overlay, const std::string& path)
    REQUIRES_SHARED(overlay.mutex());
// Returns the key in LinkIndex of the lowers' file at `path`.
Result<std::string> link_key(const Overlay& overlay, const std::string& path);

}  // namespace cacheshim
