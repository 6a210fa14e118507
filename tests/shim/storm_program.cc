// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// shim_storm DIRECTORY THREADS SECONDS: opens, closes, renames, resolves and forks in all threads
// at once, and prints the number of rounds. Exits with 1 if a call has given a wrong result.
namespace {

using Clock = std::chrono::steady_clock;

std::string directory;
Clock::time_point end;
std::atomic<long> rounds{0};
std::atomic<bool> failed{false};

void check(bool good, const char* what) {
  if (good) return;
  if (!failed.exchange(true)) std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
}

void open_and_close(const std::string& name) {
  const int fd = ::open(name.c_str(), O_CREAT | O_RDWR, 0600);
  check(fd >= 0, "open");
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  check(length > 0 && std::string(path, static_cast<std::size_t>(length)) == name, "readlink");
  ::close(fd);
  struct stat status;
  check(::stat(name.c_str(), &status) == 0, "stat");
  check(::realpath(name.c_str(), path) != nullptr && path == name, "realpath");
}

void rename_and_remove(const std::string& name) {
  const std::string moved = name + "-moved";
  check(::rename(name.c_str(), moved.c_str()) == 0, "rename");
  check(::access(name.c_str(), F_OK) == -1 && errno == ENOENT, "access");
  check(::unlink(moved.c_str()) == 0, "unlink");
  std::string made = directory + "/XXXXXX";
  const int fd = ::mkstemp(made.data());
  check(fd >= 0, "mkstemp");
  ::close(fd);
  check(::unlink(made.c_str()) == 0, "unlink of a temporary file");
}

void fork_once(const char* name) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(name, O_CREAT | O_WRONLY, 0600);
    ::_exit(fd >= 0 && ::close(fd) == 0 && ::unlink(name) == 0 ? 0 : 1);
  }
  int status = -1;
  const bool ended = child > 0 && ::waitpid(child, &status, 0) == child;
  if (ended && status != 0) std::fprintf(stderr, "a child ended by %d\n", status);
  check(ended && status == 0, "a child");
}

void* storm(void* number) {
  const std::string name = directory + "/" + std::to_string(*static_cast<int*>(number));
  const std::string of_child = name + "-child";
  do {
    for (int i = 0; i < 8; ++i) {
      open_and_close(name);
      rename_and_remove(name);
    }
    fork_once(of_child.c_str());
    ++rounds;
  } while (Clock::now() < end && !failed);
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  directory = argv[1];
  end = Clock::now() + std::chrono::seconds(std::atoi(argv[3]));
  std::vector<pthread_t> threads(static_cast<std::size_t>(std::atoi(argv[2])));
  std::vector<int> numbers(threads.size());
  for (std::size_t i = 0; i < threads.size(); ++i) {
    numbers[i] = static_cast<int>(i);
    if (::pthread_create(&threads[i], nullptr, storm, &numbers[i]) != 0) return 3;
  }
  for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
  std::printf("%ld rounds\n", rounds.load());
  return failed ? 1 : 0;
}
