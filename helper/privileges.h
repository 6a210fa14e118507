// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

namespace cacheshim::helper {

// Call first in the main() of a helper whose arguments are UID GID. Gives up all capabilities and, if this process is
// root, becomes user UID and group GID. If that fails, prints one line that begins with `name`, and returns the exit
// code. `starters`: who starts the helper, for the message about wrong arguments.
std::optional<int> give_up_privileges(int argc, char** argv, const char* name,
                                      const char* starters);

}  // namespace cacheshim::helper
