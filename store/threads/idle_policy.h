// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace cacheshim {

// Sets the scheduling policy of a thread, SCHED_OTHER or SCHED_IDLE (sched(7)). `thread` 0 means the calling thread.
// Returns false if the thread has exited, or may not get this policy.
bool set_policy(pid_t thread, int policy);

// Whether a SCHED_IDLE thread of this process may become SCHED_OTHER again. This requires CAP_SYS_NICE or a sufficient
// RLIMIT_NICE. Thread-safe; starts a thread.
bool may_leave_idle_policy();

// While this object exists, the calling thread runs only on a core that no other thread needs. Does nothing if the
// thread may not leave SCHED_IDLE again, or has a policy other than SCHED_OTHER. Hold no lock meanwhile.
class IdlePolicy {
 public:
  IdlePolicy();
  ~IdlePolicy();
  // Lets other SCHED_IDLE threads use the core, and threads that have called sched_yield(2), as polling receivers do
  // (ReceiveLoop): they wait until the scheduler's slice ends, about 3 ms, or until this call. Call it every 0.1 ms.
  void give_way() const;
  IdlePolicy(const IdlePolicy&) = delete;
  IdlePolicy& operator=(const IdlePolicy&) = delete;

 private:
  bool is_set_ = false;
};

}  // namespace cacheshim
