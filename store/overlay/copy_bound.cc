// SPDX-License-Identifier: Apache-2.0
#include "store/overlay/copy_bound.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "store/sys/copy_file.h"
#include "store/sys/tree_walk.h"

namespace cacheshim {
namespace {

// The remainder of a bound after the objects counted so far.
class Rest {
 public:
  explicit Rest(const CopyBound& bound) : rest_(bound) {}

  // Counts one object. Returns false if the bound is exceeded.
  bool take(const struct stat& st) {
    const std::uint64_t bytes = S_ISREG(st.st_mode) ? size_of_copy(st) : 0;
    if (rest_.objects == 0 || bytes > rest_.bytes) return false;
    --rest_.objects;
    rest_.bytes -= bytes;
    return true;
  }

 private:
  CopyBound rest_;
};

// Opens the lowers' object that a copy-up of `path` would copy. Errors: ENOENT, among others, if there is
// nothing to copy.
Result<UniqueFd> open_source(Overlay& overlay, const std::string& path) EXCLUDES(overlay.mutex()) {
  const ReaderLock lock(overlay.mutex());
  CACHESHIM_TRY(found, overlay.locate(path));
  if (found.where != Where::kLowers && !S_ISDIR(found.st.st_mode)) return Errno(ENOENT);
  CACHESHIM_CHECK(overlay.find_in_base(path));
  CACHESHIM_TRY(object, overlay.state.lowers->open(path, O_PATH));
  return std::move(object.fd);
}

}  // namespace

bool exceeds(const CopyBound& bound, Overlay& overlay, const std::string& path) {
  const Result<UniqueFd> source = open_source(overlay, path);
  if (!source) return false;
  const auto top = sys::stat_fd(source->get());
  if (!top) return false;
  Rest rest(bound);
  if (!rest.take(*top)) return true;
  if (!S_ISDIR(top->st_mode)) return false;
  const Status walked = walk_tree(source->get(), "", [&](const WalkedDirectory& directory) -> Status {
    for (const sys::DirEntry& entry : directory.entries) {
      const auto st = sys::stat_at(directory.fd, entry.name);
      if (!st) continue;  // removed since the directory was listed
      if (!rest.take(*st)) return Errno(EFBIG);
      if (S_ISDIR(st->st_mode)) directory.further.push_back(entry.name);
    }
    return {};
  });
  return walked.failed_with(EFBIG);
}

}  // namespace cacheshim
