// SPDX-License-Identifier: Apache-2.0
#include "fuse/nodes/node_state.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

namespace cacheshim {

bool NodeState::has_same_data(const struct stat& st) {
  const std::array<std::int64_t, 5> state = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                                             st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
  const auto stamp = static_cast<std::uint32_t>(XXH3_64bits(state.data(), sizeof state)) | 1;
  const std::uint32_t before = std::atomic_ref(stamp_).exchange(stamp);
  return before == 0 || before == stamp;
}

}  // namespace cacheshim
