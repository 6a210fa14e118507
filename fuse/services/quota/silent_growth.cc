// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/quota/silent_growth.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kStatBlock = 512;  // the unit of st_blocks

std::uint64_t blocks_of(const struct stat& st) { return static_cast<std::uint64_t>(st.st_blocks); }

}  // namespace

void SilentGrowth::add(const FileHandle& handle, const struct stat& st) {
  const MutexLock lock(mutex_);
  files_[&handle] = {handle.job, blocks_of(st)};
}

// Returns true if the file has grown and its user has exceeded the limit.
bool SilentGrowth::measure(int fd, File& file) {
  const auto st = sys::stat_fd(fd);
  if (!st) return false;
  const std::uint64_t before = std::exchange(file.blocks, blocks_of(*st));
  if (file.blocks <= before) return false;
  return file.job->layer_use.note_grown(
      file.job->views.owner().value_or(0),
      {.bytes = (file.blocks - before) * kStatBlock, .files = 0});
}

void SilentGrowth::remove(const FileHandle& handle) {
  const MutexLock lock(mutex_);
  const auto found = files_.find(&handle);
  if (found == files_.end()) return;
  if (measure(handle.fd.get(), found->second)) empty(handle);
  files_.erase(found);
}

bool SilentGrowth::measure_all() {
  const MutexLock lock(mutex_);
  for (auto& [handle, file] : files_) {
    if (!measure(handle->fd.get(), file)) continue;
    empty(*handle);
    file.blocks = 0;
  }
  return !files_.empty();
}

void SilentGrowth::empty(const FileHandle& handle) {
  Job& job = *handle.job;
  const Status emptied = ::ftruncate(handle.fd.get(), 0) == -1 ? Status(Errno::last()) : Status();
  invalidate_(encode({handle.node, handle.slot}));
  spdlog::warn(
      "job '{}' has exceeded max_layer_size by a file that the kernel writes by itself: {}; its layer is not published",
      job.id, emptied ? "the file is now empty" : std::strerror(emptied.error().code()));
  tasks_.post([job = job.shared_from_this()] {
    (void)job->refuse_publishing("its user has exceeded max_layer_size");
  });
}

}  // namespace cacheshim
