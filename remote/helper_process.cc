// SPDX-License-Identifier: Apache-2.0
#include "remote/helper_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "remote/wire.h"

namespace cacheshim::remote {
namespace {

constexpr time_t kStartSeconds = 5;
constexpr std::chrono::milliseconds kEndTime{2000};
constexpr std::chrono::milliseconds kEndPoll{5};
constexpr int kSocket = 3;  // as main.cc of the helper expects

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

  // Returns an errno value, or 0.
  int run(const std::string& program, const std::vector<std::string>& words,
          const std::vector<std::string>& environment, int socket, pid_t& pid) {
    ::posix_spawn_file_actions_adddup2(&actions_, socket, kSocket);
    return ::posix_spawn(&pid, program.c_str(), &actions_, &attributes_, pointers(words).data(),
                         pointers(environment).data());
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

// Limits how long receive_message() waits. 0: no limit.
void set_deadline(int socket, time_t seconds) {
  const timeval time{seconds, 0};
  (void)::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

// The helper gets no variable of this process except those by which OpenSSL finds certificates.
std::vector<std::string> environment_of_helper() {
  std::vector<std::string> environment{"LC_ALL=C.UTF-8"};
  for (const char* name : {"SSL_CERT_FILE", "SSL_CERT_DIR"}) {
    if (const char* const value = ::getenv(name))
      environment.push_back(fmt::format("{}={}", name, value));
  }
  return environment;
}

RemoteError cannot_start(const std::string& program, int code) {
  return {RemoteError::Kind::kUnavailable,
          fmt::format("cannot start '{}': {}", program, std::strerror(code))};
}

}  // namespace

RemoteError error_of(const nlohmann::json& reply) {
  const std::string kind = reply.value("error", "");
  RemoteError error{RemoteError::Kind::kUnavailable, kind.empty() ? "" : reply.value("text", kind)};
  if (kind == "full") error.kind = RemoteError::Kind::kFull;
  if (kind == "refused") error.kind = RemoteError::Kind::kRefused;
  return error;
}

std::variant<HelperProcess, RemoteError> HelperProcess::start(const Options& options) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return cannot_start(options.program, errno);
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  pid_t pid = -1;
  const std::vector<std::string> words{options.program, fmt::to_string(options.uid),
                                       fmt::to_string(options.gid)};
  if (const int error =
          Spawn().run(options.program, words, environment_of_helper(), theirs.get(), pid);
      error != 0) {
    return cannot_start(options.program, error);
  }
  HelperProcess helper(pid, std::move(ours));
  const Status sent = send_message(helper.socket(), {{"op", "open"},
                                                     {"urls", options.urls},
                                                     {"secrets", options.secrets},
                                                     {"timeout_ms", options.timeout.count()}});
  set_deadline(helper.socket(), kStartSeconds);
  const auto reply = sent ? receive_message(helper.socket()) : sent.error();
  set_deadline(helper.socket(), 0);
  if (!reply) {
    return RemoteError{RemoteError::Kind::kUnavailable,
                       fmt::format("'{}' ended at its start", options.program)};
  }
  if (RemoteError error = error_of(reply->json); !error.text.empty()) return error;
  helper.has_leases_ = reply->json.value("leases", false);
  return helper;
}

HelperProcess::~HelperProcess() {
  if (pid_ < 0) return;
  socket_.reset();  // the helper then exits even if this process may not kill it
  (void)::kill(pid_, SIGKILL);
  // A process that waits for a dead file system does not exit. If it exits after kEndTime, it stays a zombie until this
  // process exits.
  for (auto left = kEndTime; left.count() > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0;
       left -= kEndPoll)
    std::this_thread::sleep_for(kEndPoll);
}

}  // namespace cacheshim::remote
