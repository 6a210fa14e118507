// SPDX-License-Identifier: Apache-2.0
#include "store/sys/digest.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <unistd.h>
#include <xxhash.h>

#include <memory>

namespace cacheshim {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} * 1024;

struct FreeState {
  void operator()(XXH3_state_t* state) const { (void)XXH3_freeState(state); }
};

}  // namespace

Result<std::string> digest_of(int fd) {
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  if (!state) return Errno(ENOMEM);
  (void)XXH3_128bits_reset(state.get());  // fails only for null, as update does
  const auto buffer = std::make_unique<char[]>(kBufferBytes);
  for (off_t offset = 0;;) {
    const ssize_t count = ::pread(fd, buffer.get(), kBufferBytes, offset);
    if (count == -1) return Errno::last();
    if (count == 0) break;
    (void)XXH3_128bits_update(state.get(), buffer.get(), static_cast<std::size_t>(count));
    offset += count;
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace cacheshim
