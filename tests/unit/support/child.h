// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cacheshim {

// A child process that does nothing.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) (void)::pause();
    }
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void stop() const {
    (void)::kill(pid_, SIGSTOP);
    int status = 0;
    (void)::waitpid(pid_, &status, WUNTRACED);
  }

 private:
  pid_t pid_;
};

}  // namespace cacheshim
