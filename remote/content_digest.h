// SPDX-License-Identifier: Apache-2.0
#pragma once

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <string>
#include <string_view>

namespace cacheshim::remote {

// Computes the same digest as digest_of(), but of content that the caller adds in parts. Not thread-safe.
class ContentDigest {
 public:
  ContentDigest() {
    (void)XXH3_128bits_reset(&state_);
  }  // this and an update fail only for a null state
  void add(std::string_view bytes) {
    (void)XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  XXH3_state_t state_{};
};

}  // namespace cacheshim::remote
