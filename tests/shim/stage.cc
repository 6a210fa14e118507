// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/stage.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace cacheshim {

namespace fs = std::filesystem;

Stage::Stage() {
  std::string name = fs::temp_directory_path() / "cacheshim-shim-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no scratch directory");
  directory_ = fs::canonical(name);
  fs::create_directories(view());
  fs::create_directories(path("home"));
  fs::create_symlink(".jobs/j1/triton", path("mount/triton"));
  write_text(path("cgroup"), "0::/\n");
  environment = {{"PATH", "/usr/bin:/bin"},
                 {"HOME", path("home")},
                 {"LD_PRELOAD", std::getenv("CACHESHIM_TEST_LIBRARY")},
                 {"CACHESHIM_MOUNT", mount()},
                 {"CACHESHIM_JOB", "j1"},
                 {"TEST_MOUNTINFO", path("mountinfo")},
                 {"TEST_CGROUP", path("cgroup")},
                 {"TEST_RUN", path("run")}};
  mount_as("/");
}

Stage::~Stage() {
  std::error_code ignored;  // a scratch directory left behind must not fail a test
  fs::remove_all(directory_, ignored);
}

void Stage::mount_as(const std::string& root, unsigned mounted_by) {
  // The mount must have a different device number than the directory that an unmount uncovers.
  write_text(path("mountinfo"), "36 22 0:999 " + root + " " + mount() +
                                    " rw - fuse.cacheshim cacheshim rw,user_id=" +
                                    std::to_string(mounted_by) + ",group_id=0\n");
}

void Stage::unmount() { write_text(path("mountinfo"), ""); }

Ended Stage::run(const std::vector<std::string>& command) const {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) {
    if (!value.empty()) entries.push_back(name + "=" + value);
  }
  std::vector<char*> envp;
  for (std::string& entry : entries) envp.push_back(entry.data());
  envp.push_back(nullptr);
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  const int write_new = O_WRONLY | O_CREAT | O_TRUNC;
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, path("out").c_str(), write_new, 0600);
  ::posix_spawn_file_actions_addopen(&actions, 2, path("err").c_str(), write_new, 0600);
  pid_t child = -1;
  Ended ended;
  const int error = ::posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ended;
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return ended;
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended.out = read_text(path("out"));
  ended.err = read_text(path("err"));
  return ended;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool exists(const std::string& path) { return fs::exists(fs::symlink_status(path)); }

std::string describe_tree(const std::string& directory) {
  std::set<std::string> lines;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    std::string line = entry.path().lexically_relative(directory).string();
    if (entry.is_symlink()) {
      line += " -> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_directory()) {
      line += "/";
    } else if (entry.is_regular_file()) {
      line += ": " + read_text(entry.path());
    }
    struct stat status;
    if (::lstat(entry.path().c_str(), &status) == 0) line += " " + std::to_string(status.st_mode);
    lines.insert(line);
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace cacheshim
