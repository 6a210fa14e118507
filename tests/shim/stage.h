// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

// A scratch directory with everything that a preloaded process needs: a directory that simulates
// the mount with the view of job "j1", a home directory, and a mountinfo file.
namespace cacheshim {

struct Ended {
  int status = -1;  // exit status, or 128 + the signal's number
  std::string out;
  std::string err;
};

class Stage {
 public:
  Stage();
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string mount() const { return path("mount"); }
  std::string view() const { return path("mount/.jobs/j1/triton"); }
  std::string default_directory() const { return path("home/.triton/cache"); }

  // Simulates a mount at mount() by the user `mounted_by`. `root` is "/" for the whole mount, or
  // "/.jobs/j1" for a bound view.
  void mount_as(const std::string& root, unsigned mounted_by = 0);
  void unmount();

  // The environment of run(). A variable with an empty value is not set.
  std::map<std::string, std::string> environment;
  // Runs a program with the test library preloaded, unless `environment` overrides that.
  Ended run(const std::vector<std::string>& command) const;
  Ended run_shell(const std::string& script) const { return run({"/bin/sh", "-c", script}); }

 private:
  std::string directory_;
};

void write_text(const std::string& path, const std::string& text);
std::string read_text(const std::string& path);
bool exists(const std::string& path);  // does not follow symlinks
// Returns every name below `directory` with its kind, content and mode, one per line.
std::string describe_tree(const std::string& directory);
std::size_t count_lines(const std::string& text);

}  // namespace cacheshim
