// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/calls.h"

#include <sys/wait.h>

#include <cstring>
#include <filesystem>

namespace calls {
namespace {

void say_ended(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) say("  no child");
  say("  ended " + std::to_string(status) + ", left " + content(at("ran")));
  forget(at("ran"));
}

// Makes an exec call in a child. If the call returns, the child prints the call's errno.
#define TRY_EXEC(name, ...)                       \
  (void)find(#name);                              \
  if (const pid_t child = ::fork(); child == 0) { \
    (void)CALL(name, __VA_ARGS__);                \
    ::_exit(99);                                  \
  } else {                                        \
    say_ended(child);                             \
  }

void exec_each(const char* path) {
  char name[] = "its-name";
  std::string ran = at("ran");
  char* const arguments[] = {name, ran.data(), nullptr};
  char* const* const same = environ;
  char* const none = nullptr;
  TRY_EXEC(execve, path, arguments, same)
  TRY_EXEC(execv, path, arguments)
  TRY_EXEC(execl, path, name, ran.c_str(), none)
  TRY_EXEC(execle, path, name, ran.c_str(), none, same)
  TRY_EXEC(execvp, path, arguments)
  TRY_EXEC(execvpe, path, arguments, same)
  TRY_EXEC(execlp, path, name, ran.c_str(), none)
  TRY_EXEC(execveat, AT_FDCWD, path, arguments, same, 0)
  const int fd = ::open(path, O_RDONLY);
  TRY_EXEC(fexecve, fd, arguments, same)
  TRY_EXEC(execveat, fd, "", arguments, same, AT_EMPTY_PATH)
  ::close(fd);
}

void spawn_each(const char* path) {
  char name[] = "its-name";
  std::string ran = at("ran");
  char* const arguments[] = {name, ran.data(), nullptr};
  pid_t child = -1;
  for (int i = 0; i < 2; ++i) {
    const int error = i == 0
                          ? CALL(posix_spawn, &child, path, nullptr, nullptr, arguments, environ)
                          : CALL(posix_spawnp, &child, path, nullptr, nullptr, arguments, environ);
    if (error == 0) say_ended(child);
  }
}

void spawn_with_actions() {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  (void)CALL(posix_spawn_file_actions_addchdir_np, &actions, at("bin").c_str());
  (void)CALL(posix_spawn_file_actions_addopen, &actions, STDOUT_FILENO, at("ran").c_str(),
             O_WRONLY | O_CREAT, 0600u);
  (void)CALL(posix_spawn_file_actions_addopen, &actions, STDIN_FILENO, "script", O_RDONLY, 0u);
  char name[] = "ls";
  char* const arguments[] = {name, nullptr};
  pid_t child = -1;
  if (CALL(posix_spawn, &child, "/bin/ls", &actions, nullptr, arguments, environ) == 0) {
    say_ended(child);
  }
  (void)CALL(posix_spawn_file_actions_addopen, &actions, 7, at("missing/x").c_str(), O_RDONLY, 0u);
  (void)CALL(posix_spawn, &child, "/bin/ls", &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
}

void start_shells() {
  (void)CALL(system, ("echo shell > " + at("ran") + "; exit 3").c_str());
  (void)CALL(system, static_cast<const char*>(nullptr));
  FILE* const pipe = CALL(popen, ("cat " + at("ran")).c_str(), "r");
  char line[64] = "";
  if (std::fgets(line, sizeof line, pipe) != nullptr) say(std::string("  said ") + line);
  ::pclose(pipe);
  (void)CALL(popen, "true", "bad mode");
  forget(at("ran"));
}

void write_program(const char* name, const std::string& text) {
  write_file(at(name), text);
  (void)::chmod(at(name).c_str(), 0700);
}

std::string read_all(const char* path) {
  const int fd = ::open(path, O_RDONLY);
  std::string text;
  char piece[4096];
  for (ssize_t got; (got = ::read(fd, piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return text;
}

}  // namespace

void run_process_calls() {
  (void)::mkdir(at("bin").c_str(), 0700);
  write_program("bin/script", "#!/bin/sh -e\necho script $# > \"$1\"\nexit 7\n");
  write_program("bin/plain", "echo plain $# > \"$1\"\nexit 8\n");
  write_program("bin/shell", read_all("/bin/sh"));
  write_program("bin/inside", "#! " + at("bin/shell") + " -e \necho inside $# > \"$1\"\nexit 9\n");
  write_program("bin/lost", "#!/nowhere/at/all\n");
  write_file(at("bin/closed"), "x");
  for (const char* name : {"bin/script", "bin/plain", "bin/inside", "bin/lost", "bin/closed",
                           "bin/missing", "bin/script/x"}) {
    say(name);
    exec_each(at(name).c_str());
    spawn_each(at(name).c_str());
  }
  exec_each(nullptr);
  const char* const path = std::getenv("PATH");
  const std::string before = path == nullptr ? "" : path;
  ::setenv("PATH", ("/nowhere:" + at("missing") + ":" + at("bin") + ":" + before).c_str(), 1);
  for (const char* name : {"script", "plain", "inside", "closed", "not-there", "true"}) {
    say(name);
    exec_each(name);
    spawn_each(name);
  }
  ::setenv("PATH", before.c_str(), 1);
  spawn_with_actions();
  start_shells();
  for (const char* name : {"bin/inside", "bin/shell"}) forget(at(name));
}

}  // namespace calls
