// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fuse/limits/user_limits.h"
#include "fuse/services/locks/lock_table.h"
#include "store/sys/sys.h"
#include "store/threads/event_loop.h"
#include "tests/unit/support/scratch.h"

// Lock requests of processes 1001, 1002, … to a LockTable, and their results.
namespace cacheshim {

inline constexpr std::chrono::seconds kLockDeadline{10};

// The result of one lock request.
class LockOutcome {
 public:
  void set(int error) {
    const std::lock_guard lock(mutex_);
    error_ = error;
    changed_.notify_all();
  }
  // Returns the error of the reply (0 for success), or -1 if there is no reply yet.
  int now() {
    const std::lock_guard lock(mutex_);
    return error_.value_or(-1);
  }
  int wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLockDeadline, [this] { return error_.has_value(); });
    return error_.value_or(-1);
  }
  std::atomic<std::uint64_t> ticket{0};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<int> error_;
};

class TestLockReply final : public LockReply {
 public:
  explicit TestLockReply(std::shared_ptr<LockOutcome> outcome) : outcome_(std::move(outcome)) {}
  void wait(std::uint64_t ticket) override { outcome_->ticket = ticket; }
  void answer(int error) override { outcome_->set(error); }

 private:
  const std::shared_ptr<LockOutcome> outcome_;
};

struct Locks : testing::Test {
  Locks() { loop.start(); }

  static LockRequest flock_request(std::uint64_t handle, short type, bool waits) {
    LockRequest request;
    request.owner = request.handle = handle;
    request.process = static_cast<pid_t>(1000 + handle);
    request.type = type;
    request.waits = waits;
    request.reports_close = true;
    return request;
  }
  static LockRequest record_request(std::uint64_t owner, short type, off_t start, off_t length) {
    LockRequest request = flock_request(owner, type, true);
    request.is_record = true;
    request.start = start;
    request.length = length;
    return request;
  }
  std::shared_ptr<LockOutcome> send(LockTable& table, const LockFileId& id,
                                    const LockRequest& request) {
    auto outcome = std::make_shared<LockOutcome>();
    table.lock(
        id, [this] { return sys::open_path(path, O_PATH); }, request,
        std::make_unique<TestLockReply>(outcome));
    return outcome;
  }
  // Opens the lock file as a process outside the mount does.
  UniqueFd raw() { return *sys::open_path(path, O_RDWR); }

  Scratch scratch;
  const std::string path = scratch / "x.lock";
  const UniqueFd made = *sys::open_path(path, O_RDWR | O_CREAT, 0666);
  const struct stat st = *sys::stat_fd(made.get());
  const LockFileId shared{st.st_dev, st.st_ino};
  const LockFileId own{0, 7};
  Counters counters;
  EventLoop loop;
};

}  // namespace cacheshim
