// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cacheshim::cli {

// Returns a directory on this machine's own file system for the layers of a store whose file system other machines can
// change. The directory is in /var/lib/cacheshim for root, and in /var/tmp/cacheshim-UID for other users; creates it.
// Returns "" if the layers must be kept in the store: because the store's file system is local, or, after a message,
// because no directory can be used. `store`: the store's resolved path.
std::string local_layers_for(const std::string& store);

}  // namespace cacheshim::cli
