// SPDX-License-Identifier: Apache-2.0
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

namespace cacheshim {

// The table that libfuse dispatches by. The session's userdata is a Filesystem*.
const fuse_lowlevel_ops& fuse_operations();

}  // namespace cacheshim
