// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fuse/transport/client_core.h"
#include "fuse/transport/queue_drain.h"
#include "fuse/transport/request_ring.h"
#include "fuse/transport/request_source.h"
#include "store/threads/mutex.h"
#include "store/threads/task_queue.h"

struct fuse_session;

namespace cacheshim {

// Receives requests over io_uring, on the client's core, and passes them to libfuse. Requests
// without an answer, and interrupts, still come through /dev/fuse (ReceiveLoop).
//
// Each core has a few threads that are bound to it. The kernel prefers the thread that has answered last. So one of
// them handles all requests until a disk or a lock blocks it; then the others take over. Requests of kinds that may
// take a long time are passed to threads that are not bound to a core.
//
// A round trip then takes only two context switches; over /dev/fuse, it wakes another core twice.
// Clients on different cores do not wait for the same receiver.
class RingLoop final : public RequestSource {
 public:
  // Creates receivers for each core (`threads` divided by the number of cores, but at least two), one more such group
  // for the offline cores, and `threads` threads for requests that take a long time. Returns nullptr, with the reason
  // in `why`, in these cases: a thread or ring cannot be created (io_uring may be forbidden); the kernel's parameter
  // fuse.enable_uring is off or does not exist (before Linux 6.14); the process may not use all cores, or cannot
  // determine their number. If a ring fails later, the process exits, because it could no longer answer all requests.
  // The session must outlive the loop.
  static std::unique_ptr<RingLoop> make(fuse_session* session, const std::string& mount_point,
                                        unsigned threads, std::string& why);
  ~RingLoop() override;
  std::uint32_t init_flags2() const override;
  void start() override;
  void stop() override;
  std::optional<ssize_t> reply(const iovec* parts, int count) override;
  char* reply_space(std::size_t size) override;

 private:
  struct Receiver {
    std::unique_ptr<RequestRing> ring;
    std::unique_ptr<ClientCore> client_core;
    // The number of wake-ups with requests, shifted left by one. The last bit is set while these
    // requests are handled.
    std::atomic<std::uint64_t> progress{0};
    bool is_at_work() const { return progress % 2 != 0; }
    std::uint64_t seen_progress = 0;  // used only by the watcher
    std::thread thread;
  };
  // Entries whose requests were answered on other threads, and whose answers no receiver has sent yet. A busy receiver
  // checks for such entries after its work; an idle one must be woken.
  class Answered {
   public:
    void add(RingEntry& entry);
    std::vector<RingEntry*> take();

   private:
    std::atomic<bool> is_empty_{true};
    Mutex mutex_;
    std::vector<RingEntry*> entries_ GUARDED_BY(mutex_);
  };
  struct Core final : QueueDrain::Receivers {
    int number = -1;  // -1: all offline cores together
    std::vector<std::unique_ptr<Receiver>> receivers;
    Answered answered;
    std::atomic<std::uint64_t> held_count{0};

    std::uint64_t arrivals() const override;
    std::uint64_t held() const override { return held_count; }
    bool are_at_rest() const override;
  };
  // The phases follow each other in this order.
  enum class Phase : std::uint8_t { kSetUp, kServing, kEnding, kAnswering, kOver };

  // Identifies a request that may already have been answered.
  struct RequestId {
    std::uint64_t unique;
    pid_t client;  // the thread that waits
  };

  RingLoop(fuse_session* session, std::string mount_point, unsigned threads);

  bool add_core(int number, const std::vector<std::uint16_t>& queues, unsigned receivers);
  void make_threads();
  void run(Core& core, Receiver& self);
  int serve(Core& core, Receiver& self);
  bool is_unmounted() const;
  const std::vector<RingEntry*>& wait(Core& core, Receiver& self);
  static bool send_answers_of_others(Core& core, Receiver& self);
  void take(Core& core, Receiver& self, ClientCore::Guest& guest, RingEntry& entry);
  bool handle(RingEntry& entry);
  void give_back(RingEntry& entry);
  void note_held(Core& core, Receiver& self, CoreQueue& queue) const;
  bool check_for_signal(const RequestId& id);
  void recheck_later(const RequestId& id);
  void interrupt(std::uint64_t unique);
  RingEntry* find(std::uint64_t unique) const;
  Core& core_of(const RequestRing& ring) const;
  void watch();
  bool check_progress(Receiver& receiver);
  bool has_guests() const;
  void wake_watcher();

  fuse_session* const session_;
  const std::string mount_point_;
  const unsigned threads_;
  const ClientCore anywhere_;
  std::vector<std::unique_ptr<Core>> cores_;
  std::vector<Receiver*> receivers_;  // the receivers of all cores
  std::unique_ptr<TaskQueue> slow_requests_;
  std::unique_ptr<QueueDrain> drain_;
  std::unique_ptr<TaskQueue> signal_checks_;
  std::unique_ptr<std::latch> have_closed_;
  std::atomic<Phase> phase_{Phase::kSetUp};
  std::atomic<bool> watcher_sleeps_{false};
  Mutex mutex_;  // for watcher_call_
  CondVar watcher_call_;
  std::thread watcher_;
};

}  // namespace cacheshim
