// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/overlay/overlay.h"
#include "store/overlay/overlay_types.h"
#include "store/sys/new_object.h"

// Changes of an overlay's names: creating, linking, renaming and removing objects.
//
// The order of steps keeps the merged view right at every time and after a crash: a whiteout is
// written before the name it hides leaves the layer; and a new name is in the layer, which takes
// precedence over the base, before the whiteout of its predecessor is removed.
//
// Overlay::mutex() says how the lock must be held.
namespace cacheshim::changes {

// Whether a function that creates an object at `path` may be called while the lock is held shared.
bool makes_shared(const Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());

// Creates and opens a regular file. Errors: EEXIST. For a lock file, see create_lock().
Result<UniqueFd> create_file(Overlay& overlay, const std::string& path, int flags,
                             const NewObject& wanted) REQUIRES_SHARED(overlay.mutex());
Status make_dir(Overlay& overlay, const std::string& path, const NewObject& wanted)
    REQUIRES_SHARED(overlay.mutex());
// Makes anything except directories and links.
Status make_node(Overlay& overlay, const std::string& path, const NewObject& wanted)
    REQUIRES_SHARED(overlay.mutex());
Status make_symlink(Overlay& overlay, const std::string& path, const std::string& target,
                    const NewObject& wanted = 0777) REQUIRES_SHARED(overlay.mutex());
// Errors for a lock file: EPERM if the layer is on another file system, and for names of class
// `shared`; EFBIG. A file of the layer becomes a lock file by a link to such a name.
Status link(Overlay& overlay, const std::string& path, const std::string& new_path)
    REQUIRES(overlay.mutex());
// make_tmpfile() creates a file without a name that belongs to the directory `dir` (O_TMPFILE).
// link_object() gives it a name (linkat(2)).
Result<UniqueFd> make_tmpfile(Overlay& overlay, const std::string& dir, int flags,
                              const NewObject& wanted) REQUIRES(overlay.mutex());
Status link_object(Overlay& overlay, int fd, const std::string& new_path) REQUIRES(overlay.mutex());

Status remove_file(Overlay& overlay, const std::string& path, Hold hold = Hold::kExclusive)
    REQUIRES_SHARED(overlay.mutex());
// Returns ENOTEMPTY while the merged directory has contents.
Status remove_dir(Overlay& overlay, const std::string& path, Hold hold = Hold::kExclusive)
    REQUIRES_SHARED(overlay.mutex());

// `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE or 0. Returns EXDEV only for the name of a lock file:
// with RENAME_EXCHANGE, for an object that is not a regular file, and for names of class `shared`.
// A file of the layer becomes a lock file by a rename to such a name, and the other way round. Then
// `new_lock` gets an O_PATH descriptor of it, because another process may already have removed its
// name.
//
// The object is first copied up, a directory with everything that the merged view has below it, and
// then moved by one rename(2) within the layer. A directory that moves becomes opaque: it is not
// the directory that the base may have, or get, under its new name.
Status rename(Overlay& overlay, const std::string& from, const std::string& to, unsigned flags,
              Hold hold = Hold::kExclusive, UniqueFd* new_lock = nullptr)
    REQUIRES_SHARED(overlay.mutex());

}  // namespace cacheshim::changes
