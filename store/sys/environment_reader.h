// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/result.h"

namespace cacheshim {

// Reads the environments of processes, with a time limit.
//
// A process can block every read of its /proc/PID/environ for as long as it likes, because the read takes the process's
// mmap lock:
// 1. A thread of the process faults on a page of a FUSE file whose server, run by the same user, does not answer. At
//    the second attempt, the thread keeps the mmap lock while it waits (fault_flag_allow_retry_first() in the kernel's
//    mm.h).
// 2. A second thread waits to take the lock for writing, for example in mmap(2).
// 3. The read waits behind the second thread. Only a fatal signal ends the read.
//
// So separate threads read the files, one thread per user at a time. A read that takes too long keeps its thread. From
// then on, requests for this user fail at once, until the read returns and for `exclusion` afterwards. So within each
// such period, a user can delay callers only once.
//
// Thread-safe. A thread whose read is blocked may outlive this object.
class EnvironmentReader {
 public:
  using Read = std::function<Result<std::string>(pid_t pid, const std::string& proc)>;
  struct Limits {
    std::chrono::milliseconds read{1000};
    std::chrono::milliseconds exclusion{60'000};
    int threads = 64;
  };

  EnvironmentReader();
  EnvironmentReader(Read read, Limits limits);  // for tests
  ~EnvironmentReader();
  EnvironmentReader(const EnvironmentReader&) = delete;
  EnvironmentReader& operator=(const EnvironmentReader&) = delete;

  // Returns the environment that the process received at its exec; a NUL ends each variable. `uid`: the real user of
  // the process. Blocks for at most Limits::read. This limit does not apply to processes of root, because no user can
  // make them hang. Errors: ETIMEDOUT if the file cannot be read in time, if no thread is free, and for all processes
  // of an excluded user; otherwise those of open(2) and read(2). Call with no lock held.
  Result<std::string> read(pid_t pid, uid_t uid, const std::string& proc = "/proc");

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace cacheshim
