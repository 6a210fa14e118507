// SPDX-License-Identifier: Apache-2.0
#include "store/sys/whiteout.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

namespace cacheshim {

std::string whiteout_name(std::string_view name) {
  if (!needs_encoding(name)) return fmt::format(".wh.{}", name);
  const XXH128_hash_t hash = XXH3_128bits(name.data(), name.size());
  return fmt::format(".wh..wh.long.{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace cacheshim
