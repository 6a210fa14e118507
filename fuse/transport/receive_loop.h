// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/transport/client_core.h"
#include "fuse/transport/request_source.h"
#include "store/threads/mutex.h"

struct fuse_session;

namespace cacheshim {

class RequestBuffer;

// Reads requests from /dev/fuse and passes them to libfuse. Accepts every reply.
//
// A FUSE round trip is two wake-ups and little work, and waking a sleeping core takes far longer
// than most requests. So one thread, the head, reads the requests one after another and stays awake
// briefly after each while there is traffic. The others sleep, until
//   - the head starts a request that may take a long time (an fsync, a copy): another thread becomes the head;
//   - requests follow each other without a pause, or come from several clients: one more thread helps until it has
//     polled without success for a while (at most half as many threads as cores, but two on two or three cores);
//   - a request takes unexpectedly long, because a disk or a lock is slow: the watcher, which is awake only while there
//     is traffic, then makes another thread the head within two of its ticks.
// With a single client the head shares the client's core (ClientCore); the watcher checks that the head makes progress.
class ReceiveLoop final : public RequestSource {
 public:
  // Has `threads` receivers (at least 2) on the session's descriptor. One of them calls `on_end` after an unmount, or
  // when reading the descriptor fails. The session must outlive the loop.
  ReceiveLoop(fuse_session* session, unsigned threads, std::function<void()> on_end);
  ~ReceiveLoop() override;
  void start() override;
  void stop() override;
  std::optional<ssize_t> reply(const iovec* parts, int count) override;

 private:
  enum class Call { kHead, kHelp, kEnd };
  enum class Received { kRequest, kNothing, kEnd };

  void run(unsigned self);
  Call wait_for_call(unsigned self);
  void lead(unsigned self, RequestBuffer& buffer);
  void help(RequestBuffer& buffer);
  Received receive(RequestBuffer& buffer);
  Received spin(RequestBuffer& buffer, ClientCore::Guest* guest);
  bool has_request() const;
  bool wait_for_request() const;
  void handle_as_head(RequestBuffer& buffer, ClientCore::Guest& guest);
  void handle(RequestBuffer& buffer);
  void call_head();
  void call_helper();
  void watch();
  void wake_watcher();
  void end();

  fuse_session* const session_;
  const int fd_;
  const unsigned receivers_;
  const unsigned most_helpers_;
  const UniqueFd stop_event_;  // readable once the loop must end
  const std::function<void()> on_end_;
  ClientCore client_core_;

  std::atomic<bool> stopping_{false};
  std::atomic<unsigned> head_{0};  // the head's number, from 1 upwards; 0: a new head was called
  std::atomic<pid_t> head_client_{0};  // the client of the head's last request
  // The number of requests that the heads have begun, shifted left by one; the last bit is set while the head handles a
  // request.
  std::atomic<std::uint64_t> progress_{0};
  std::atomic<bool> watcher_sleeps_{false};

  Mutex mutex_;  // not held while a request is handled
  CondVar call_;
  CondVar watcher_call_;
  bool head_called_ GUARDED_BY(mutex_) = true;
  unsigned helpers_called_ GUARDED_BY(mutex_) = 0;
  unsigned helpers_ GUARDED_BY(mutex_) = 0;

  std::vector<std::thread> threads_;
};

}  // namespace cacheshim
