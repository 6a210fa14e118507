// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/overlay/overlay_types.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// A copy of a base file in the layer's work directory, to be renamed into the layer. The destructor
// removes a copy that was not renamed.
class StagedCopy {
 public:
  StagedCopy(std::shared_ptr<const UniqueFd> work, std::string name, off_t keep_bytes)
      : work_(std::move(work)), name_(std::move(name)), keep_bytes_(keep_bytes) {}
  ~StagedCopy();
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;

  int work() const { return work_->get(); }
  const std::string& name() const { return name_; }
  off_t keep_bytes() const { return keep_bytes_; }  // the length of the copied data

 private:
  friend class StagedCopies;
  const std::shared_ptr<const UniqueFd> work_;  // stays open even if the layer is removed
  const std::string name_;
  const off_t keep_bytes_;
  bool taken_ = false;
  // ---- StagedCopies' mutex protects the next members.
  bool is_done_ = false;
  Status outcome_;
  UniqueFd file_;  // open for reading and writing, if Keep::kOpen was wanted
};

// The copies that are being made, or are complete and not yet renamed into the layer. The key of a copy is the copied
// file's device, inode number, size and mtime. So one copy serves all concurrent requests, and a copy is not used if
// the file has changed since the copy was begun. Thread-safe; a thread that holds the mutex takes no other lock.
class StagedCopies {
 public:
  using Ticket = std::shared_ptr<StagedCopy>;
  // Whether a complete copy stays open until it is taken. A change that needs many copies uses kClosed, because each
  // open copy uses a descriptor.
  enum class Keep { kClosed, kOpen };
  struct Claim {
    Ticket copy;
    bool is_maker;      // false: another request makes the copy, and the next members are not set
    UniqueFd source;    // open for reading
    struct stat st {};  // of the source
    Keep keep = Keep::kClosed;
  };

  // `observer` is notified of each step of a copy; it may be null.
  StagedCopies(OverlayObserver* observer, bool keep_owner)
      : observer_(observer), keep_owner_(keep_owner) {}
  // Sets the work directory in which copies are made; null if there is none. Forgets all copies.
  void set_work(std::shared_ptr<const UniqueFd> work);

  // Claims a copy of the current state of the regular file `source`, with at least the first `keep_bytes` of its data.
  // Reuses a copy that another request has made or is making; otherwise claims a new one. The caller must then call
  // complete(), because other requests may be waiting for the copy. Requires: a work directory. Errors: ESTALE if
  // `source` is not a regular file.
  Result<Claim> begin(UniqueFd source, off_t keep_bytes, Keep keep = Keep::kClosed);
  // Returns a complete copy of the file in the state `st`, with at least the first `keep_bytes` of its
  // data; null if there is none.
  Ticket find_ready(const struct stat& st, off_t keep_bytes);
  // Makes the copy, or waits for the thread that makes it; returns the result.
  Status complete(const Claim& claim);
  // Call when the copy has received its name in the layer. No other request can then use the copy. Returns a descriptor
  // of the copy, open for reading and writing; an empty one unless the copy was made with Keep::kOpen.
  UniqueFd set_taken(const Ticket& copy);
  // Returns an unused name for the work directory.
  std::string new_name();
  // Notifies the observer, and returns the observer's error.
  Status at_step(CopyUpStep step) const;

 private:
  struct State {  // the state of a file's data
    dev_t device;
    ino_t inode;
    off_t size;
    std::time_t seconds;  // the file's st_mtim
    long nanoseconds;
    explicit State(const struct stat& st);
    bool operator<(const State& other) const;
  };
  Result<UniqueFd> make(const Claim& claim) const;
  Ticket find(const State& state, off_t bytes) const REQUIRES(mutex_);
  void finish(const Ticket& copy, Status outcome, UniqueFd file = {});
  void forget(const Ticket& copy) REQUIRES(mutex_);

  OverlayObserver* const observer_;
  const bool keep_owner_;
  std::atomic<unsigned> count_{0};
  Mutex mutex_;
  std::shared_ptr<const UniqueFd> work_ GUARDED_BY(mutex_);
  CondVar done_;
  std::multimap<State, std::weak_ptr<StagedCopy>> copies_ GUARDED_BY(mutex_);
};

// Copies that the next change to names uses. See prepare_copy_up().
using PreparedCopies = std::vector<StagedCopies::Ticket>;

}  // namespace cacheshim
