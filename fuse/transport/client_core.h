// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cacheshim {

// Binds the calling thread to a core. False if it may not be there.
bool go_to_core(int core);

// Lets the receiver that takes the requests run on the core of a client that is alone with it.
//
// Between one thread that asks and one that answers, most of a round trip is that the one wakes the
// other on another core: a few microseconds on bare metal, 30 in some virtual machines, where the
// answer itself takes 4. On one core it is a change of context. The scheduler leaves the client
// there only if it takes the core for idle, which it does where nothing runs but what is SCHED_IDLE
// (sched(7); sched_idle_cpu() in kernel/sched/fair.c, since Linux 5.4). So the receiver becomes that,
// on the client's core, while request follows request and all are of one thread. Balancing moves the
// client away now and then, some hundred requests apart; it is followed.
//
// Who is SCHED_IDLE waits for everybody else who wants the core. So another thread looks whether the
// receiver gets on, and stops the stay if not; it is then not tried again for a second, the next time
// for two, and so on up to a minute.
//
// Receivers that have a core of their own and take what is asked there (RingLoop) stay where they are,
// and need not follow: another has the next core.
//
// Only for who may give SCHED_IDLE up again (CAP_SYS_NICE, or RLIMIT_NICE), on several cores, and not
// where somebody has given the daemon another policy. A thread that a guest makes would be SCHED_IDLE
// too: the daemon makes all of its own when it starts.
class ClientCore {
 public:
  // One receiver's stays, one after the other. For its own thread alone, which is an ordinary one again
  // when this is destroyed.
  class Guest {
   public:
    explicit Guest(ClientCore& core) : core_(core) {}
    ~Guest() { leave(); }
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    // A request that is not answered yet, so that the thread `client` stands still; 0 where the kernel
    // does not say whose it is.
    void note_request(pid_t client);
    // There is no request, where the client would have asked by now: it may be on another core.
    void follow();
    // To be called before a sleep, and before what may last or wants a core of its own.
    void leave();
    bool is_in() const { return is_in_; }

   private:
    void enter();
    void check_stay();

    ClientCore& core_;
    pid_t client_ = 0;
    unsigned streak_ = 0;  // requests of this client, one after the other
    unsigned moves_ = 0;   // of the client to another core, lately
    int at_ = -1;          // the core
    bool is_in_ = false;
  };

  ClientCore();
  // For a receiver that is on this core already, if `anywhere` may have guests.
  ClientCore(const ClientCore& anywhere, int core);
  ClientCore(const ClientCore&) = delete;
  ClientCore& operator=(const ClientCore&) = delete;

  // For the thread that looks after the receivers.
  bool has_guest() const { return guest_ != 0 && ended_ != Ended::kResting; }
  // Makes the guest, which does not get on, an ordinary thread at once. May be repeated.
  void stop() { end_stay(Ended::kStopped); }
  // The same for a guest that has nothing to do: it may come back soon.
  void rest() { end_stay(Ended::kResting); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Ended : std::uint8_t { kNot, kStopped, kResting };

  int place_of(pid_t client) const;
  void end_stay(Ended how);
  void pause();

  cpu_set_t everywhere_{};  // where the receivers may run
  bool is_possible_ = false;
  const int own_core_ = -1;      // -1: the client's
  std::atomic<pid_t> guest_{0};  // its thread; set before it is SCHED_IDLE, until after
  std::atomic<Ended> ended_{Ended::kNot};
  // Written by guests, of whom there is one at a time.
  Clock::duration pause_;
  Clock::time_point not_before_;
};

}  // namespace cacheshim
