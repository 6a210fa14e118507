// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "fuse/services/freshness/notice.h"

namespace cacheshim {

// Makes the kernel forget names that nobody needs, on a separate thread. A user's process can block this thread for as
// long as it likes (LateOwners), even in a directory that all users share. So nobody waits for the thread, and its work
// makes no user late: while it is blocked, no further names are forgotten. Thread-safe.
class NameForgetter {
 public:
  explicit NameForgetter(std::shared_ptr<const NoticeWriter> writer);

  // Begins to send notices of the kinds kForget and kPrune. Does nothing while earlier ones are being sent, after
  // stop(), and if no thread can be started.
  void begin(std::vector<Notice> names);
  // Drops the notices that have not been sent. Returns false if the thread is blocked; it then ends when the kernel lets
  // it. Idempotent.
  bool stop();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared, const std::vector<Notice>& names);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace cacheshim
