// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "common/result.h"
#include "store/overlay/overlay.h"
#include "store/overlay/overlay_types.h"

// The steps from which changes.h and other files of store/overlay/ compose their operations. These functions
// create and remove names, whiteouts and opaque markers in the layer.
namespace cacheshim {

// ---- A new name

// Checks that `path` may get an object, ensures that the layer has the directory above it, and counts the new object
// (OverlayObserver::grow()). Errors: EEXIST if the base has an object at `path` that the layer does not hide. If only
// the layer has one, this function succeeds, and the change itself fails with EEXIST.
Status prepare_new_name(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
// Call before a file is created at `path`. If the path is in an entry that is a directory, and the base
// has no part of this entry, makes the directory opaque. Does nothing for scratch names, locks and
// batons.
void begin_entry(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
Status mark_opaque(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
Status clear_opaque(Overlay& overlay, const std::string& path) REQUIRES(overlay.mutex());

// ---- Removing a name

Status add_whiteout(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
void remove_whiteout(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
// Call before a change hides the base's name at `path`; `found` is the object that the view shows
// there. Records the loss of the name if the base's file has several names (LinkIndex).
Status hide_in_base(Overlay& overlay, const std::string& path, const Located& found)
    REQUIRES_SHARED(overlay.mutex());
// Calls `remove`, which removes `path` from the layer. If this is the object's last name, removes the
// record of the object's origin first, and restores the record if `remove` fails.
Status remove_last_name(Overlay& overlay, const std::string& path,
                        const std::function<Status()>& remove) REQUIRES_SHARED(overlay.mutex());
// Call after a name of a copied-up file with hard links has been removed. Removes the file's
// records if no name is left.
void forget_link_if_gone(Overlay& overlay, const struct stat& st) REQUIRES_SHARED(overlay.mutex());
Status remove_upper_dir(Overlay& overlay, const std::string& path) REQUIRES_SHARED(overlay.mutex());
Status remove_upper_file(Overlay& overlay, const std::string& path)
    REQUIRES_SHARED(overlay.mutex());

// ---- A rename

Status check_rename_target(const Overlay& overlay, const Located& source, const std::string& to,
                           const Result<Located>& target, unsigned flags)
    REQUIRES_SHARED(overlay.mutex());
bool are_one_file(const struct stat& one, const struct stat& other);
// Whether the object becomes a lock file or a shared file of the base if it gets the name `to`.
bool becomes_common(const Overlay& overlay, const Located& source, const std::string& to);

}  // namespace cacheshim
