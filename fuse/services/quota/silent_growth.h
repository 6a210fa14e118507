// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "fuse/jobs/job.h"
#include "fuse/nodes/handle.h"
#include "store/threads/mutex.h"
#include "store/threads/task_queue.h"

namespace cacheshim {

// Measures the growth of files in passthrough (IoModes), which the kernel writes without a request to the daemon.
//
// The daemon measures each file once per second, and when it is closed. The kernel offers no way to stop its writes to
// a file in passthrough. So if a file has grown and its user has exceeded max_layer_size, the daemon empties the file.
// It then never publishes the layer, because files of the layer may be incomplete. If a user is near the limit
// (LayerUse::is_near_limit()), the daemon opens no more files in passthrough for the user. So a user loses a file only
// by writing a quarter of the limit to files that were already open in passthrough.
//
// Thread-safe.
class SilentGrowth {
 public:
  // Makes the kernel request a node's attributes again. Must not take a job's lock; called with mutex_ held.
  using Invalidate = std::function<void(NodeId)>;
  // Work that may have to wait for a job's lock runs on `tasks`, which must outlive this object.
  SilentGrowth(TaskQueue& tasks, Invalidate invalidate)
      : tasks_(tasks), invalidate_(std::move(invalidate)) {}

  // Call add() when `handle` has been opened for writing; `st`: the file's attributes. Call remove() before the
  // handle's descriptor is closed.
  void add(const FileHandle& handle, const struct stat& st) EXCLUDES(mutex_);
  void remove(const FileHandle& handle) EXCLUDES(mutex_);
  // Measures all files. Returns false if there are none.
  bool measure_all() EXCLUDES(mutex_);

 private:
  struct File {
    Job* job;
    std::uint64_t blocks;
  };
  static bool measure(int fd, File& file);
  void empty(const FileHandle& handle);

  TaskQueue& tasks_;
  const Invalidate invalidate_;
  Mutex mutex_{LockRank::kSilentGrowth};  // held across fstat(2) and ftruncate(2)
  std::unordered_map<const FileHandle*, File> files_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
