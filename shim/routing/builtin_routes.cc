// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/builtin_routes.h"

#include "common/route_table.h"

namespace cacheshim {
namespace {

alignas(RouteTableHeader) constexpr unsigned char kBytes[] = {
#include "builtin_routes.inc"
};

}  // namespace

std::string_view builtin_routes() {
  return {static_cast<const char*>(static_cast<const void*>(kBytes)), sizeof kBytes};
}

}  // namespace cacheshim
