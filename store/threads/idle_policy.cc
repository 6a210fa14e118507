// SPDX-License-Identifier: Apache-2.0
#include "store/threads/idle_policy.h"

#include <sched.h>

#include <thread>

namespace cacheshim {

bool set_policy(pid_t thread, int policy) {
  const sched_param parameter{};
  return ::sched_setscheduler(thread, policy, &parameter) == 0;
}

// Makes the attempt on a separate thread: if the thread may not leave SCHED_IDLE, it simply exits.
bool may_leave_idle_policy() {
  bool returned = false;
  std::thread([&returned] {
    returned = set_policy(0, SCHED_IDLE) && set_policy(0, SCHED_OTHER);
  }).join();
  return returned;
}

IdlePolicy::IdlePolicy() {
  static const bool may_leave = may_leave_idle_policy();
  is_set_ = may_leave && ::sched_getscheduler(0) == SCHED_OTHER && set_policy(0, SCHED_IDLE);
}

IdlePolicy::~IdlePolicy() {
  if (is_set_) (void)set_policy(0, SCHED_OTHER);
}

void IdlePolicy::yield() const {
  if (is_set_) (void)::sched_yield();
}

}  // namespace cacheshim
