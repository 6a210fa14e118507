// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/eviction/store_keeper.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/direct_page.h"
#include "store/layer/layer.h"
#include "store/sys/file_system.h"
#include "store/sys/process.h"
#include "store/sys/sys.h"
#include "store/threads/guard.h"

namespace cacheshim {
namespace {

// How long files stay in trash on a network file system. Another machine may have one of these files open, and removing
// the file would make that machine's descriptor stale.
constexpr std::time_t kTrashKeepSeconds = 3600;
// The maximum number of files that wait for a new access time. Each takes a descriptor.
constexpr std::size_t kMostUses = 256;

// Sets the access time of the file of `object`, an O_PATH descriptor, to the current time. `st`: the file's attributes.
// First reads a byte: if the file system then updates the access time, the ctime stays unchanged. Otherwise (noatime,
// relatime), calls utimensat(2), for which the daemon must own the file or have CAP_FOWNER. Ignores errors.
void set_access_time(int object, const struct stat& st) {
  if (const auto file = sys::reopen(object, O_RDONLY | O_NONBLOCK)) {
    char byte = 0;
    (void)!::pread(file->get(), &byte, 1, 0);
    const auto read = sys::stat_fd(object);
    if (read && read->st_atime > st.st_atime) return;
  }
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  (void)sys::set_times(object, times);
}

}  // namespace

StoreKeeper::StoreKeeper(const Store& store, const EntryMap& entries, Counters& counters,
                         Invalidator& invalidator, const Options& options)
    : store_(store),
      entries_(entries),
      counters_(counters),
      invalidator_(invalidator),
      options_(options),
      started_(std::time(nullptr)),
      verifier_(options.verifies_on_open ? std::make_unique<OpenVerifier>(store, entries)
                                         : nullptr),
      is_base_local_(is_local_file_system(store.base())) {}

// Eviction depends on access times. The file system does not update a file's access time if the kernel answers a read
// from the mount's page cache, or if the file system is mounted with noatime. So the daemon sets the access time.
//
// utimensat(2) takes the inode lock. Any user who may read the file can keep this lock held indefinitely: FIEMAP writes
// its result to a buffer with the lock held, and the buffer may be a mapping of a file whose file system never returns
// the data. So a separate thread sets the time.
void StoreKeeper::note_use(int fd, const struct stat& st, int flags) {
  if ((flags & O_NOATIME) != 0) return;
  const std::time_t used = std::max(st.st_atime, st.st_mtime);
  if (!options_.is_tended || used >= std::time(nullptr) - kUseGrainSeconds) return;
  auto opened = sys::reopen(fd, O_PATH);
  if (!opened) return;
  const auto set_time = [file = std::make_shared<const UniqueFd>(*std::move(opened)), st](
                            const auto&) { set_access_time(file->get(), st); };
  (void)uses_.try_post(set_time, kMostUses);  // if the queue is full, a later use sets the time
}

std::vector<std::string> StoreKeeper::check_on_open(const std::string& path) {
  OpenVerifier::Verdict verdict = verifier_->check(path);
  if (verdict.why.empty()) return {};
  counters_.verify_failures.fetch_add(1, std::memory_order_relaxed);
  spdlog::warn(
      "verify_on_open: {}; {}", verdict.why,
      verdict.trashed_paths.empty() ? "the entry is used anyway" : "its entry goes to trash");
  return std::move(verdict.trashed_paths);
}

Result<EvictionReport> StoreKeeper::collect_garbage(bool dry_run) {
  CACHESHIM_TRY(lock, store_.try_lock_base());
  EvictionReport report = plan_eviction(store_, entries_, options_.limits);
  if (dry_run) return report;
  invalidator_.removed_and_wait(evict_units(store_, report));
  bool is_urgent = false;
  for (const EvictedUnit& one : report.evicted) is_urgent = is_urgent || one.reason == "min_free";
  sweep_trash(store_, is_base_local_ || is_urgent ? 0 : kTrashKeepSeconds, sweeping());
  Store::note_eviction(lock);
  if (!report.evicted.empty()) {
    spdlog::info("gc: {} entries with {} files and {} bytes evicted", report.evicted.size(),
                 report.files, report.bytes);
  }
  if (report.is_over) {
    spdlog::warn("gc: the base is above its limits, but all that is left was used within {} s",
                 options_.limits.min_age.count());
  }
  return report;
}

Result<VerifyReport> StoreKeeper::verify(bool repair, const VerifyProgress& progress,
                                         const IsWanted& is_wanted) {
  UniqueFd lock;
  if (repair) {
    CACHESHIM_TRY(taken, store_.try_lock_base());
    lock = std::move(taken);
  }
  CACHESHIM_TRY(report, verify_base(store_, entries_, repair, progress, is_wanted));
  invalidator_.removed_and_wait(report.trashed_paths);
  for (const DamagedFile& file : report.damaged) {
    spdlog::warn("verify: '{}' is damaged: {}{}", file.path, file.why,
                 repair ? "; its entry goes to trash" : "");
  }
  return report;
}

void StoreKeeper::tend() {
  const unsigned ended =
      end_abandoned_layers(store_.layers(), node_name(), started_, options_.layer_keep.count());
  if (ended > 0) spdlog::info("{} layers that no daemon holds were ended", ended);
  sweep_ended_layers(store_.layers(), options_.layer_keep.count(), sweeping());
  // If several machines share the base, one round suffices for all their daemons.
  if (!is_base_local_ && store_.has_evicted_within(options_.interval)) return;
  if (options_.limits.are_set()) {
    const auto collected = collect_garbage(/*dry_run=*/false);
    if (!collected && !collected.failed_with(EWOULDBLOCK)) {
      spdlog::error("gc: {}; tried again later", std::strerror(collected.error().code()));
    }
  } else {
    sweep_trash(store_, is_base_local_ ? 0 : kTrashKeepSeconds, sweeping());
  }
}

void StoreKeeper::tend_if_due(FairQueue& tasks) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_first = tended_ == std::chrono::steady_clock::time_point();
  if (!options_.is_tended || (!is_first && now - tended_ < options_.interval)) return;
  if (tending_.exchange(true)) return;  // the previous round is still running
  tended_ = now;
  tasks.post(sys::own_uid(), [this] {
    (void)run_guarded("tending the store", [this] { tend(); });
    tending_ = false;
  });
}

}  // namespace cacheshim
