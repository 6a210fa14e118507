// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cacheshim::cli {

// Returns a directory on this machine's own file system for the layers of a store whose file system other machines can
// change. The directory is in /var/lib/cacheshim for root, and in /var/tmp/cacheshim-UID for other users; creates it.
// Returns "" if the layers are to be kept in the store: either the store's file system is local, or no directory can be
// used. In the latter case, prints a message. `store`: the store's resolved path.
std::string local_layers_for(const std::string& store);

}  // namespace cacheshim::cli
