// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "common/counters.h"
#include "fuse/jobs/invalidator.h"
#include "store/base/evictor.h"
#include "store/base/open_verifier.h"
#include "store/base/store.h"
#include "store/base/verifier.h"
#include "store/profiles/entry_map.h"
#include "store/threads/detached_queue.h"
#include "store/threads/fair_queue.h"

namespace cacheshim {

// Maintains the store: eviction, verification and repair, and the cleanup after dead daemons.
// Thread-safe; call with no lock held.
class StoreKeeper {
 public:
  struct Options {
    EvictionLimits limits;
    std::chrono::seconds interval;    // the time between two maintenance rounds
    std::chrono::seconds layer_keep;  // how long the layers of ended jobs are kept
    bool is_tended = true;            // false: the mount has no store, only plain directories
    bool verifies_on_open = false;
  };

  // All must outlive this object.
  StoreKeeper(const Store& store, const EntryMap& entries, Counters& counters,
              Invalidator& invalidator, const Options& options);

  // `is_local`: whether only this machine changes the base.
  void set_base_local(bool is_local) { is_base_local_ = is_local; }

  // collect_garbage() evicts units until the base is within its limits; with `dry_run`, it only returns the report.
  // verify() compares the base with its records; with `repair`, it also moves damaged units to trash. Both can take a
  // long time. Errors: EWOULDBLOCK if another daemon or request is collecting garbage or repairing (verify(): only with
  // `repair`); otherwise those of verify_base().
  Result<EvictionReport> collect_garbage(bool dry_run);
  Result<VerifyReport> verify(bool repair, const VerifyProgress& progress,
                              const IsWanted& is_wanted);
  // Posts a maintenance round to `tasks` if one is due. Call from one thread only.
  void tend_if_due(FairQueue& tasks);
  // Call when the daemon ends. Stops the removal of directory trees, which can take a long time if jobs have created
  // many files. The next daemon continues the removal.
  void stop_sweeping() { is_ending_ = true; }

  // Call when a file of the base has been opened with `flags`. If the file's access and modification times are both
  // older than kUseGrainSeconds, sets its access time, on which eviction depends, to the current time. A separate
  // thread does this soon afterwards. Does nothing if `flags` contains O_NOATIME, or if the mount has no store. May be
  // called with the overlay's mutex held.
  void note_use(int fd, const struct stat& st, int flags);
  bool verifies_on_open() const { return verifier_ != nullptr; }
  // Verifies the entry of `path` in the base. Requires: verifies_on_open(). Call before a process sees the entry. If
  // the entry is damaged, moves it to trash and returns all its paths, even if the move failed.
  std::vector<std::string> check_on_open(const std::string& path);

 private:
  void tend();
  IsWanted sweeping() const {
    return [this] { return !is_ending_; };
  }

  const Store& store_;
  const EntryMap& entries_;
  Counters& counters_;
  Invalidator& invalidator_;
  const Options options_;
  const std::time_t started_;
  const std::unique_ptr<OpenVerifier> verifier_;  // null without verify_on_open
  std::atomic<bool> is_base_local_;
  std::chrono::steady_clock::time_point tended_{};
  std::atomic<bool> tending_{false};
  std::atomic<bool> is_ending_{false};
  DetachedQueue uses_;
};

}  // namespace cacheshim
