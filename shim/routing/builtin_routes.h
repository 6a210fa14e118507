// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace cacheshim {

// Returns the route table (common/route_table.h) of the profiles that were shipped with this library.
// Used if the daemon's table cannot be read, as in most bound views.
std::string_view builtin_routes();

}  // namespace cacheshim
