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
// thread may not leave SCHED_IDLE again, or has a policy other than SCHED_OTHER. Hold no lock while this object exists.
class IdlePolicy {
 public:
  IdlePolicy();
  ~IdlePolicy();
  // Yields the core to two kinds of threads: other SCHED_IDLE threads, and threads that call sched_yield(2) while they
  // poll, such as receivers (ReceiveLoop). Without this call, they would wait until this thread's time slice ends,
  // after about 3 ms. Call it about every 0.1 ms.
  void yield() const;
  IdlePolicy(const IdlePolicy&) = delete;
  IdlePolicy& operator=(const IdlePolicy&) = delete;

 private:
  bool is_set_ = false;
};

}  // namespace cacheshim
