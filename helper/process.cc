// SPDX-License-Identifier: Apache-2.0
#include "helper/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "common/unique_fd.h"

namespace cacheshim::helper {
namespace {

constexpr std::chrono::milliseconds kEndTime{2000};
constexpr std::chrono::milliseconds kEndPoll{5};
constexpr int kFirstDescriptor = 3;

// The actions and attributes of posix_spawn(3).
class Spawn {
 public:
  Spawn() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setflags(&attributes_,
                               POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) {
      ::posix_spawn_file_actions_addopen(&actions_, stream, "/dev/null", O_RDWR, 0);
    }
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;
  ~Spawn() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  void pass(int descriptor, int as) {
    ::posix_spawn_file_actions_adddup2(&actions_, descriptor, as);
  }
  // Returns an errno value, or 0.
  int run(const std::vector<std::string>& words, const std::vector<std::string>& environment,
          pid_t& pid) {
    return ::posix_spawn(&pid, words.front().c_str(), &actions_, &attributes_,
                         pointers(words).data(), pointers(environment).data());
  }

 private:
  // posix_spawn(3) does not change the texts.
  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
    all.push_back(nullptr);
    return all;
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

Result<Process> Process::start(const Options& options) {
  Spawn spawn;
  // Copies above the numbers that the helper uses, because passing one descriptor must not close another one.
  std::vector<UniqueFd> copies;
  const int above = kFirstDescriptor + static_cast<int>(options.descriptors.size());
  for (const int descriptor : options.descriptors) {
    UniqueFd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, above));
    if (!copy) return Errno::last();
    spawn.pass(copy.get(), kFirstDescriptor + static_cast<int>(copies.size()));
    copies.push_back(std::move(copy));
  }
  std::vector<std::string> words{options.program};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  pid_t pid = -1;
  if (const int error = spawn.run(words, options.environment, pid); error != 0) return Errno(error);
  return Process(pid);
}

Process::~Process() {
  if (pid_ < 0) return;
  (void)::kill(pid_, SIGKILL);
  // A process that waits for a dead file system does not exit. If it exits after kEndTime, it stays a zombie until this
  // process exits.
  for (auto left = kEndTime; left.count() > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0;
       left -= kEndPoll)
    std::this_thread::sleep_for(kEndPoll);
}

}  // namespace cacheshim::helper
