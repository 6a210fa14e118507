// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/overlay/overlay.h"
#include "store/overlay/overlay_types.h"
#include "store/sys/new_object.h"

// Changes to an overlay's names: creating, linking, renaming and removing objects.
//
// The order of the steps keeps the merged view correct at all times. A removal writes the whiteout
// before it removes the layer's name. A whiteout is removed only after a new name is in the layer,
// where the name takes precedence over the base. A rename writes the whiteout of the old name last:
// if the daemon crashes before this step, the base's object shows under the old name again.
//
// The comment on Overlay::mutex() says when the mutex must be held exclusively.
namespace cacheshim::changes {

// Whether a function that creates an object at `path` may be called with the mutex held shared.
bool makes_shared(const Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());

// Creates and opens a regular file. Calls create_lock() if `path` is the name of a lock file. Errors:
// EEXIST.
Result<UniqueFd> create_file(Overlay& overlay, const std::string& path, int flags,
                             const NewObject& wanted) REQUIRES_SHARED(overlay.mutex());
Status make_dir(Overlay& overlay, const std::string& path, const NewObject& wanted)
    REQUIRES_SHARED(overlay.mutex());
// Makes a regular file, a FIFO, a socket or a device. Errors: EPERM for a character device 0:0.
Status make_node(Overlay& overlay, const std::string& path, const NewObject& wanted)
    REQUIRES_SHARED(overlay.mutex());
Status make_symlink(Overlay& overlay, const std::string& path, const std::string& target,
                    const NewObject& wanted = 0777) REQUIRES_SHARED(overlay.mutex());
// If `new_path` is the name of a lock file, the layer's file becomes a lock file. Errors for lock
// files: EPERM if layer and base are on different file systems, and for names of class `shared`;
// EFBIG for a file that is too large.
Status link(Overlay& overlay, const std::string& path, const std::string& new_path)
    REQUIRES(overlay.mutex());
// make_tmpfile() creates an unnamed file in the directory `dir` (O_TMPFILE). link_object() gives the file a name
// (linkat(2)).
Result<UniqueFd> make_tmpfile(Overlay& overlay, const std::string& dir, int flags,
                              const NewObject& wanted) REQUIRES(overlay.mutex());
Status link_object(Overlay& overlay, int fd, const std::string& new_path) REQUIRES(overlay.mutex());

Status remove_file(Overlay& overlay, const std::string& path, Hold hold = Hold::kExclusive)
    REQUIRES_SHARED(overlay.mutex());
// Errors: ENOTEMPTY if the merged directory has contents.
Status remove_dir(Overlay& overlay, const std::string& path, Hold hold = Hold::kExclusive)
    REQUIRES_SHARED(overlay.mutex());

// `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE or 0. A rename to the name of a lock file makes a file
// of the layer a lock file: `new_lock` then gets an O_PATH descriptor of the lock file, because another
// process may already have removed the name. A rename of a lock file to any other name makes it a
// file of the layer. A rename between two names of lock files, or between two names of class
// `shared`, is made in the base, with any of the flags. Errors if only one name is a lock file's:
// EXDEV with RENAME_EXCHANGE, for an object that is not a regular file, and for names of class
// `shared`; EFBIG for a file that is too large.
//
// The object is first copied up (a directory with everything that the merged view has below it) and
// then moved by one rename(2) within the layer. A moved directory becomes opaque, so that it does
// not merge with a directory that the base has, or later gets, under the new name.
Status rename(Overlay& overlay, const std::string& from, const std::string& to, unsigned flags,
              Hold hold = Hold::kExclusive, UniqueFd* new_lock = nullptr)
    REQUIRES_SHARED(overlay.mutex());

}  // namespace cacheshim::changes
