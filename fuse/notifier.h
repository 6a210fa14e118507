// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cacheshim {

// Tells the kernel that names it has cached may be wrong, from one thread of its own.
//
// A notice for an entry waits in the kernel for the lock of the folder, which the sender of a
// request in that folder holds until we answer it. So notices are never sent from a handler. A
// publisher's answer is held back until the other views have been told; that is safe as long as no
// answer waits, directly or not, for a notice of a folder that its own request holds. Hence the one
// rule of post(): an answer whose folders are the target of a notice that is queued or under way is
// given first. As the queue is strictly first in, first out, a notice that blocks then always waits
// for a request that a worker answers without us.
class Notifier {
 public:
  using FolderId = std::uint64_t;  // nodeid, as the kernel knows it
  struct Notice {
    FolderId folder;
    std::string name;
  };

  // Writes to the session's descriptor, which must outlive the notifier.
  explicit Notifier(int fuse_fd);
  ~Notifier();  // sends what is queued first

  // Sends the notices, then calls `done` on the notifier's thread; or, by the rule above, calls
  // `done` at once. `held` are the folders that the request to be answered holds; no notice may
  // be for one of them.
  void post(std::vector<Notice> notices, std::vector<FolderId> held, std::function<void()> done);

 private:
  struct Batch {
    std::vector<Notice> notices;
    std::function<void()> done;
  };

  void run();
  void send(const Notice& notice) const;
  bool targets_any(const std::vector<FolderId>& held) const;

  const int fuse_fd_;
  std::mutex mutex_;  // innermost; not held while a notice is sent or `done` runs
  std::condition_variable wake_;
  std::deque<Batch> queue_;  // the front one is under way
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cacheshim
