// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

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
#include "store/sys/mutex.h"
#include "store/sys/task_queue.h"

struct fuse_session;

namespace cacheshim {

// Takes requests by io_uring, on the core that they are made on, and has libfuse handle them. What is
// neither answered nor waited for, and an interrupt, still comes by /dev/fuse (ReceiveLoop).
//
// Each core has a few threads that stay on it. The kernel prefers the one that has answered last, so
// one of them handles all as long as it gets on; the others are for when it is held up by a disk or a lock.
// What may last by its nature is given to threads that are of no core.
//
// A round trip is then no more than two changes of context, where /dev/fuse wakes another core twice;
// and clients on several cores do not wait for one receiver.
class RingLoop {
 public:
  // Sets up `threads` threads, or two a core if that is more. nullptr, with what is missing in `why`,
  // where there is no FUSE over io_uring: the kernel's parameter fuse.enable_uring is off (a kernel
  // before 6.14 has none), io_uring is forbidden, or some cores are not for us. If the rings
  // fail later, nobody can be answered any more, and the process ends. The session must outlive the loop.
  static std::unique_ptr<RingLoop> make(fuse_session* session, const std::string& mount_point,
                                        unsigned threads, std::string& why);
  ~RingLoop();
  RingLoop(const RingLoop&) = delete;
  RingLoop& operator=(const RingLoop&) = delete;

  // The kernel has been told that requests are taken by rings, and sends none until they are.
  void start();
  // Takes no more requests; those under way have been handled when it returns. Answers still go out.
  void close();
  // An answer that libfuse sends, of any thread. False if it is none to a request of a ring.
  bool answer(const iovec* parts, int count);
  // Where the calling thread may make up to `size` bytes of the answer to the request that it handles;
  // nullptr if that did not come by a ring.
  static char* answer_space(std::size_t size);

 private:
  struct Receiver {
    std::unique_ptr<RequestRing> ring;
    std::unique_ptr<ClientCore> client_core;
    // How often requests came, shifted left by one; the last bit is set while they are handled.
    std::atomic<std::uint64_t> progress{0};
    bool is_at_work() const { return progress % 2 != 0; }
    std::uint64_t seen_progress = 0;  // the watcher's
    std::thread thread;
  };
  // Entries whose requests others than their receivers have answered, until a receiver sends them off.
  // Who is at work looks here when that is done; who waits is to be woken.
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
    int number = -1;  // -1: all that are off
    std::vector<std::unique_ptr<Receiver>> receivers;
    Answered answered;
    std::atomic<std::uint64_t> held_count{0};

    std::uint64_t arrivals() const override;
    std::uint64_t held() const override { return held_count; }
    bool are_at_rest() const override;
  };
  // One comes after the other.
  enum class Phase : std::uint8_t { kSetUp, kServing, kEnding, kAnswering, kOver };

  // A request that may have been answered meanwhile.
  struct Asked {
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
  bool look_for_signal(const Asked& asked);
  void post_look(const Asked& asked);
  void interrupt(std::uint64_t unique);
  RingEntry* find(std::uint64_t unique) const;
  Core& core_of(const RequestRing& ring) const;
  void watch();
  bool look_after(Receiver& receiver);
  bool has_guests() const;
  void wake_watcher();

  fuse_session* const session_;
  const std::string mount_point_;
  const unsigned threads_;
  const ClientCore anywhere_;
  std::vector<std::unique_ptr<Core>> cores_;
  std::vector<Receiver*> receivers_;  // of all cores
  std::unique_ptr<TaskQueue> lasting_;
  std::unique_ptr<QueueDrain> drain_;
  std::unique_ptr<TaskQueue> looks_;
  std::unique_ptr<std::latch> have_closed_;
  std::atomic<Phase> phase_{Phase::kSetUp};
  std::atomic<bool> watcher_sleeps_{false};
  Mutex mutex_;  // of watcher_call_
  CondVar watcher_call_;
  std::thread watcher_;
};

}  // namespace cacheshim
