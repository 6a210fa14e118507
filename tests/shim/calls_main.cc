// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstring>
#include <set>

// calls MODE DIRECTORY: makes every interposed call on paths below DIRECTORY and prints the
// results. MODE selects the process or thread that makes the calls: "here", "thread", "fork",
// "exec" or "spawn". If TEST_WITHOUT_PROGRAMS is set, no call starts a program: on some systems,
// the programs cannot load the library.

namespace calls {

std::string root;
bool starts_programs() { return std::getenv("TEST_WITHOUT_PROGRAMS") == nullptr; }

namespace {

std::set<std::string>& found_names() {
  static std::set<std::string> names;
  return names;
}

std::string with_root_hidden(std::string text) {
  for (std::size_t at = 0; (at = text.find(root, at)) != std::string::npos;) {
    text.replace(at, root.size(), "@");
  }
  return text;
}

// Prints each name in symbols.def that this program does not call yet.
void say_missing() {
#define CACHESHIM_SYMBOL(name, group) \
  if (found_names().count(#name) == 0) say("no call of " #name);
#include "shim/symbols.def"
#undef CACHESHIM_SYMBOL
}

void* run_all(void*) {
  run_open_calls();
  run_temp_calls();
  run_stat_calls();
  run_namespace_calls();
  run_directory_calls();
  run_resolve_calls();
  run_attribute_calls();
  if (starts_programs()) run_process_calls();
  run_loader_calls();
  run_syscall_calls();
  run_descriptor_calls();
  run_identity_calls();
  if (starts_programs()) say_missing();
  return nullptr;
}

}  // namespace

void* find(const char* name) {
  found_names().insert(name);
  void* const address = ::dlsym(RTLD_DEFAULT, name);
  if (address == nullptr) {
    say(std::string("libc has no ") + name);
    std::exit(1);
  }
  return address;
}

void say(const std::string& text) {
  std::printf("%s\n", with_root_hidden(text).c_str());
  std::fflush(stdout);
}

std::string show(long value) { return std::to_string(value); }
std::string show(const void* pointer) { return pointer == nullptr ? "null" : "pointer"; }

std::string content(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0) return "(none)";
  char text[256];
  const ssize_t length = ::read(fd, text, sizeof text);
  ::close(fd);
  return length < 0 ? "(unreadable)" : std::string(text, static_cast<std::size_t>(length));
}

void write_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || ::write(fd, text.data(), text.size()) < 0) say("cannot write " + path);
  ::close(fd);
}

void forget(const std::string& path) { (void)::unlink(path.c_str()); }

}  // namespace calls

namespace {

int wait_for(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
  return WEXITSTATUS(status);
}

int run_here() {
  calls::run_all(nullptr);
  return 0;
}

int run_in_thread() {
  pthread_t thread;
  if (::pthread_create(&thread, nullptr, calls::run_all, nullptr) != 0) return 1;
  return ::pthread_join(thread, nullptr);
}

int run_in_fork() {
  const pid_t child = ::fork();
  if (child == 0) std::exit(run_here());
  return wait_for(child);
}

int run_in_child(char** argv) {
  char here[] = "here";
  char* const arguments[] = {argv[0], here, argv[2], nullptr};
  pid_t child;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) return 1;
  return wait_for(child);
}

int run_by_exec(char** argv) {
  ::execl("/proc/self/exe", argv[0], "here", argv[2], nullptr);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  calls::root = argv[2];
  const std::string mode = argv[1];
  if (mode == "thread") return run_in_thread();
  if (mode == "fork") return run_in_fork();
  if (mode == "exec") return run_by_exec(argv);
  if (mode == "spawn") return run_in_child(argv);
  return run_here();
}
