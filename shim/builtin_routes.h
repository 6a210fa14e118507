// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace cacheshim {

// The route table (common/route_table.h) of the profiles that were shipped with this library: for bound views,
// and mounts whose daemon does not tell its own.
std::string_view builtin_routes();

}  // namespace cacheshim
