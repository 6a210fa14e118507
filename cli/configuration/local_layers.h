// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cacheshim::cli {

// Returns a directory for the layers of a store on a file system that other machines can change: on this machine's own
// file system, in /var/lib/cacheshim for root and in /var/tmp/cacheshim-UID for other users. Creates it. Returns "", so
// that the layers are kept in the store, if the store's file system is local, and also, after a message, if there is no
// such directory. `store`: the store's resolved path.
std::string local_layers_for(const std::string& store);

}  // namespace cacheshim::cli
