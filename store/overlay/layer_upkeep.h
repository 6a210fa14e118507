// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"
#include "store/overlay/layer_names.h"
#include "store/overlay/overlay.h"

// Operations on the layer itself: for the daemon that takes over a layer, and for the publisher,
// which moves files from the layer into the base.
namespace cacheshim {

// Builds the index of the layer, whose contents may be from an earlier daemon, and removes staged
// files from the work directory.
Status load_layer(Overlay& overlay) REQUIRES(overlay.mutex());
// Syncs the work directory's records of the copies' origins. Requires: the copies themselves are on
// disk. Does not need Overlay::mutex(), but holds a mutex of OriginLog during the fsync(2).
inline Status sync_records(Overlay& overlay) { return overlay.state.origins.sync(); }

// Removes a published file from the layer without a whiteout. The base's file may be the same inode.
Status drop_file(Overlay& overlay, const std::string& path) REQUIRES(overlay.mutex());
// Removes the directory from the layer if it is empty there and the base has the directory too. Keeps a directory that
// only the layer has, because the job may need it.
void prune_empty_dir(Overlay& overlay, const std::string& path) REQUIRES(overlay.mutex());

}  // namespace cacheshim
