// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "store/overlay/layer_names.h"
#include "store/overlay/overlay.h"

// Operations on the layer itself: for the daemon that takes over a layer, and for the publisher,
// which moves files from the layer into the base.
namespace cacheshim {

// Reads the index of the layer's contents, which an earlier daemon may have left, and removes
// staged files from the work directory.
Status load_layer(Overlay& overlay) REQUIRES(overlay.mutex());
// Writes the work directory's records of copies to disk. Requires: the copies themselves are on
// disk. Takes no lock.
inline Status sync_records(Overlay& overlay) { return overlay.state.origins.sync(); }

// Removes a published file from the layer without a whiteout. The base's file may be the same
// object.
Status drop_file(Overlay& overlay, const std::string& path) REQUIRES(overlay.mutex());
// Removes the directories at and below `path` that are empty and that the base has as well. Keeps
// empty directories that only the job has made.
void prune_empty_dirs(Overlay& overlay, const std::string& path) REQUIRES(overlay.mutex());

}  // namespace cacheshim
