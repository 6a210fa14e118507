// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cacheshim {

// Binds the calling thread to a core. Returns false if it may not run there, or if there is no such
// core.
bool go_to_core(int core);

// Lets the receiver run on the core of its only client.
//
// A client thread and a receiver on different cores spend most of a round trip on waking each other: a few µs on bare
// metal, 30 µs in some virtual machines. The answer itself takes only 4 µs. On the same core, a wake-up is only a
// context switch. The scheduler wakes the client on this core only if the core counts as idle, that is, if only
// SCHED_IDLE threads run on it (sched(7); sched_idle_cpu() in kernel/sched/fair.c, since Linux 5.4). So while requests
// arrive without a pause and all come from one thread, the receiver is a guest on the client's core: it runs there as
// SCHED_IDLE. Load balancing moves the client to another core every few hundred requests; the receiver follows it.
//
// A SCHED_IDLE thread yields to every runnable thread. So another thread checks whether the guest makes progress, and
// ends the guest's stay if it does not. The receiver then does not try again for one second; each later failure doubles
// this time, up to 64 seconds.
//
// A receiver that is bound to a core handles the requests of that core (RingLoop). It stays there
// and follows no client, because other receivers handle the requests of the other cores.
//
// A receiver becomes a guest only if the daemon may leave SCHED_IDLE again (CAP_SYS_NICE, or RLIMIT_NICE), may run on
// several cores, and has the policy SCHED_OTHER. A thread that a guest creates would also be SCHED_IDLE, so the daemon
// creates all of its threads when it starts.
class ClientCore {
 public:
  // Manages one receiver's stays on the cores of its clients. Only the receiver's thread may use this object. The
  // destructor ends the current stay, if any.
  class Guest {
   public:
    explicit Guest(ClientCore& core) : core_(core) {}
    ~Guest() { leave(); }
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    // Call for each request before answering it, while the client's thread `client` is still blocked in the request.
    // `client` is 0 if the kernel does not identify the thread.
    void note_request(pid_t client);
    // Call if there is no request although the client should have sent one by now: the client may
    // have moved to another core.
    void follow();
    // Call before a sleep, and before work that may take a long time or should run in parallel with the client.
    void leave();
    bool is_in() const { return is_in_; }

   private:
    void enter();
    void check_stay();

    ClientCore& core_;
    pid_t client_ = 0;
    unsigned streak_ = 0;  // consecutive requests of this client
    unsigned moves_ = 0;   // recent moves of the client to another core
    int at_ = -1;          // the core on which the guest runs
    bool is_in_ = false;
  };

  ClientCore();
  // For a receiver that is bound to `core`. Allows guests only if `anywhere` allows them.
  ClientCore(const ClientCore& anywhere, int core);
  ClientCore(const ClientCore&) = delete;
  ClientCore& operator=(const ClientCore&) = delete;

  // ---- For the thread that watches the receivers
  bool has_guest() const { return guest_ != 0 && ended_ != Ended::kResting; }
  // Ends the stay of a guest that makes no progress: sets the guest's policy to SCHED_OTHER and lets it run on all
  // cores that it may use as a receiver. May be repeated.
  void stop() { end_stay(Ended::kStopped); }
  // As stop(), but for a guest that has nothing to do. Sets no waiting time: the guest may return soon.
  void rest() { end_stay(Ended::kResting); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Ended : std::uint8_t { kNot, kStopped, kResting };

  int place_of(pid_t client) const;
  void end_stay(Ended how);
  void pause();

  cpu_set_t everywhere_{};  // the cores that the receivers may use
  bool is_possible_ = false;
  const int own_core_ = -1;      // -1: guests run on the client's core
  // The guest's thread id; set before the thread becomes SCHED_IDLE, cleared after it has left.
  std::atomic<pid_t> guest_{0};
  std::atomic<Ended> ended_{Ended::kNot};
  // Only the guest uses the next two members. There is at most one guest at a time, so they need no lock.
  Clock::duration pause_;
  Clock::time_point not_before_;
};

}  // namespace cacheshim
