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
// A process can block every read of its /proc/PID/environ, for as long as it likes, because the read takes the lock of
// the process's memory map. One thread of the process holds this lock while it waits for a page of a FUSE file whose
// server, run by the same user, does not answer (fault_flag_allow_retry_first() in the kernel's mm.h: a second attempt
// keeps the lock), and a second thread waits for the lock in order to change the map. Only a fatal signal ends the
// read.
//
// So separate threads read the files, one thread per user at a time. A read that takes too long blocks its thread. The
// reader then fails for this user at once, until the read returns and for `exclusion` after it. So a user delays others
// only once.
//
// Thread-safe. Threads that a process blocks outlive this object.
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

  // Returns the variables that the process got at its exec, each with a final NUL. `uid`: the real user of the process.
  // Errors: ETIMEDOUT if the file cannot be read in time, and for all processes of an excluded user; those of open(2)
  // and read(2). Does not limit the time for processes of root, which a user cannot make hang. Call with no lock held.
  Result<std::string> read(pid_t pid, uid_t uid, const std::string& proc = "/proc");

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace cacheshim
