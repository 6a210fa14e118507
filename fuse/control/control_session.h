// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "fuse/limits/user_limits.h"
#include "fuse/requests/completion.h"
#include "fuse/requests/pending_replies.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// One open `control` file: a request and the lines that answer it (docs/control.md). Thread-safe; call with no lock
// held.
class ControlSession {
 public:
  // Call when a request has been written. Holds `charge` until the request is answered. Errors: EBUSY if the session
  // already has a request.
  Status begin(Charge charge);
  // Completes `reader` with up to `size` bytes of the next lines, as soon as there are any. Completes it with no bytes
  // if there is no request, or if the whole answer has been read. tick() bounds the wait. Errors: EBUSY if another read
  // is waiting.
  void read(Completion<Result<std::string_view>> reader, std::size_t size);
  // If a read is waiting, completes it with the pending bytes, or with a progress line if there are none.
  void tick();
  void close();

  void progress(std::string_view what, std::uint64_t done, std::uint64_t total);
  void answer(const nlohmann::ordered_json& line);
  void answer_line(std::string line);  // one line of JSON, without the newline
  void refuse(const std::string& why, int exit_code);
  // Returns true if the file is open and its last line has not been read yet.
  bool is_waiting();
  bool has_unread_answer();

 private:
  // Returns the reply to the waiting read, with the pending bytes that fit. Requires: `reader_` is set.
  PendingReplies take_reply() REQUIRES(mutex_);
  bool has_pending() const REQUIRES(mutex_) { return fetched_ < pending_.size(); }
  std::string progress_line() const REQUIRES(mutex_);

  Mutex mutex_;
  bool has_request_ GUARDED_BY(mutex_) = false;
  Charge charge_ GUARDED_BY(mutex_);
  bool answered_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::string pending_ GUARDED_BY(mutex_);      // queued lines; the first `fetched_` bytes have been read
  std::size_t fetched_ GUARDED_BY(mutex_) = 0;  // in bytes
  std::string what_ GUARDED_BY(mutex_) = "working";
  std::uint64_t done_ GUARDED_BY(mutex_) = 0;
  std::uint64_t total_ GUARDED_BY(mutex_) = 0;
  std::optional<Completion<Result<std::string_view>>> reader_ GUARDED_BY(mutex_);
  std::size_t reader_size_ GUARDED_BY(mutex_) = 0;
};

}  // namespace cacheshim
