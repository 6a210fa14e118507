// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuse/transport/request_handler.h"

namespace cacheshim {

struct Filesystem;

// Returns the handler that serves a session's requests from `filesystem`. `filesystem` must outlive the session.
RequestHandler request_handler(Filesystem& filesystem);

}  // namespace cacheshim
