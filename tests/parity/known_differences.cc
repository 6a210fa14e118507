// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/known_differences.h"

#include <fnmatch.h>

namespace cacheshim::parity {
namespace {

constexpr KnownDifference kKnownDifferences[] = {
    {"names-of-ours", "names that begin with .wh. are the layer's marks"},
    {"directory-nlink", "1: subdirectories of a merged directory are not counted"},
    {"inode-flags", "FS_IOC_* would act on a file that may be the base's"},
    {"rename-whiteout", "RENAME_WHITEOUT is not supported"},
    {"trusted-attributes", "trusted.* and security.* are not kept, but for file capabilities"},
};

}  // namespace

std::span<const KnownDifference> known_differences() { return kKnownDifferences; }

const char* find_known_difference(const std::string& case_name) {
  for (const KnownDifference& known : kKnownDifferences) {
    if (::fnmatch(known.pattern, case_name.c_str(), 0) == 0) return known.reason;
  }
  return nullptr;
}

}  // namespace cacheshim::parity
