// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cacheshim {

// A child process that the destructor kills. Not thread-safe.
class OwnedProcess {
 public:
  OwnedProcess() = default;
  explicit OwnedProcess(pid_t pid) : pid_(pid) {}
  ~OwnedProcess() { kill(); }
  OwnedProcess(const OwnedProcess&) = delete;
  OwnedProcess& operator=(const OwnedProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Kills the previous process, and owns the process `pid` from now on.
  void own(pid_t pid) {
    kill();
    pid_ = pid;
  }
  void kill() {
    if (pid_ <= 0) return;
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Returns when all threads of the process have stopped.
  void stop() const {
    (void)::kill(pid_, SIGSTOP);
    (void)::waitpid(pid_, nullptr, WUNTRACED);
  }
  void resume() const { (void)::kill(pid_, SIGCONT); }
  // If the process has exited, reaps it and returns true; this object then owns no process.
  bool has_exited() {
    if (::waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
    pid_ = -1;
    return true;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace cacheshim
