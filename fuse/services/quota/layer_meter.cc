// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/quota/layer_meter.h"

#include <fcntl.h>

#include <algorithm>
#include <set>
#include <utility>

#include "store/sys/sys.h"
#include "store/sys/tree_walk.h"
#include "store/threads/guard.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kBlock = 512;  // the unit of st_blocks

std::uint64_t bytes_of(const struct stat& st) {
  return static_cast<std::uint64_t>(st.st_blocks) * kBlock;
}

// Counts every name, but the blocks of a file with several names only once.
Result<LayerSize> size_of_tree(int root) {
  LayerSize size;
  std::set<std::pair<dev_t, ino_t>> linked;
  CACHESHIM_CHECK(walk_tree(root, "", [&](const WalkedDirectory& directory) -> Status {
    for (const sys::DirEntry& entry : directory.entries) {
      const auto st = sys::stat_at(directory.fd, entry.name);
      if (!st) continue;  // removed meanwhile
      ++size.files;
      const bool is_dir = S_ISDIR(st->st_mode);
      if (is_dir) directory.further.push_back(entry.name);
      if (is_dir || st->st_nlink == 1 || linked.insert({st->st_dev, st->st_ino}).second)
        size.bytes += bytes_of(*st);
    }
    return {};
  }));
  return size;
}

bool is_time_for(const Job& job, LayerMeter::Clock::time_point now) {
  const LayerUse::Walk last = job.layer_use.last_walk();
  const bool is_used = job.use.open_files > 0 || job.use.last_use() > last.began;
  return is_used && now >= last.next;
}

void note_measured(Job& job, LayerMeter::Clock::time_point began) {
  using Duration = LayerMeter::Clock::duration;
  const auto now = LayerMeter::Clock::now();
  const auto rest = std::max<Duration>(LayerMeter::kRest * (now - began), LayerMeter::kInterval);
  job.layer_use.note_walk({began, now + rest});
}

}  // namespace

// Starts to measure a layer that is due, unless another layer is being measured. Returns false if no layer is due.
bool LayerMeter::begin_one(Clock::time_point now) {
  bool is_any_due = false;
  for (const auto& job : jobs_.all()) {
    if (!job->layer_use.is_due()) continue;
    is_any_due = true;
    if (!is_time_for(*job, now) || is_measuring_.exchange(true)) continue;
    tasks_.post([this, job, now] {
      (void)run_guarded("measuring a layer", [&] { (void)measure(*job); });
      note_measured(*job, now);
      is_measuring_ = false;
    });
    break;
  }
  return is_any_due;
}

// While is_requested_ is set, request() does not wake the task. So after the reset of is_requested_, tend() calls
// begin_one() again: a layer may have become due before the reset.
LayerMeter::Clock::time_point LayerMeter::tend() {
  const auto now = Clock::now();
  const bool has_silent_files = silent_growth_.measure_all();
  if (begin_one(now) || has_silent_files) return now + kInterval;
  is_requested_ = false;
  if (!begin_one(now) && !silent_growth_.measure_all()) return EventLoop::kNever;
  is_requested_ = true;
  return now + kInterval;
}

// Returns the size of the open files that have lost their last name: they are not in the tree, but still take space.
LayerSize LayerMeter::size_of_nameless(const Job& job) const {
  LayerSize size;
  for (const NodeIndex node : open_files_.nodes()) {
    if (!nodes_.is_removed(node, job)) continue;
    const auto st = open_files_.stat(node);
    if (!st || st->st_nlink != 0) continue;
    ++size.files;
    size.bytes += bytes_of(*st);
  }
  return size;
}

Status LayerMeter::measure(Job& job) const {
  job.layer_use.begin_measuring();
  UniqueFd upper;
  {
    const ReaderLock lock(job.overlay.mutex());
    if (!job.overlay.has_layer()) return {};
    CACHESHIM_TRY(opened, sys::open_beneath(job.overlay.upper(), "", O_RDONLY | O_DIRECTORY));
    upper = std::move(opened);
  }
  CACHESHIM_TRY(size, size_of_tree(upper.get()));
  const LayerSize nameless = size_of_nameless(job);
  job.layer_use.end_measuring(job.views.owner().value_or(0),
                              {size.bytes + nameless.bytes, size.files + nameless.files});
  return {};
}

}  // namespace cacheshim
