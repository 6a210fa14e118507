// SPDX-License-Identifier: Apache-2.0
#include "bench/race/walk.h"

#include <errno.h>
#include <fts.h>

#include <memory>
#include <string>
#include <system_error>

namespace cacheshim::race {
namespace {

struct CloseWalk {
  void operator()(FTS* walk) const { (void)::fts_close(walk); }  // an error is harmless
};

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

uint64_t walk(const std::string& directory) {
  std::string root = directory;
  char* roots[] = {root.data(), nullptr};
  const std::unique_ptr<FTS, CloseWalk> tree(::fts_open(roots, FTS_PHYSICAL, nullptr));
  if (!tree) fail("fts_open '" + directory + "'", errno);
  uint64_t entries = 0;
  errno = 0;
  while (const FTSENT* entry = ::fts_read(tree.get())) {
    const int kind = entry->fts_info;
    if (kind == FTS_DNR || kind == FTS_ERR || kind == FTS_NS) {
      fail(std::string("walk to '") + entry->fts_path + "'", entry->fts_errno);
    }
    if (kind != FTS_DP) ++entries;  // fts returns a directory again after its content
  }
  if (errno != 0) fail("fts_read", errno);
  return entries - 1;  // does not count the root
}

}  // namespace cacheshim::race
