// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "store/sys/sys.h"

namespace cacheshim {

// Ends the FUSE connection of the mount with this device number: requests that wait for an answer, and all later ones,
// fail with ENOTCONN. The kernel itself does that when the last descriptor of the connection is closed, but a thread
// that is blocked in write(2) to /dev/fuse holds one. Uses fusectl, which only root of the initial user namespace can
// mount; nobody else sees this instance of it.
Status abort_connection(dev_t device);

}  // namespace cacheshim
