// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "common/unique_fd.h"

namespace cacheshim {

// A temporary directory for one test, which the destructor removes.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "cacheshim-unit-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::ofstream(*this / name) << text;
  }
  // Returns the content, or "<none>" if the file does not exist.
  std::string read(const std::string& name) const {
    std::ifstream file(*this / name);
    if (!file) return "<none>";
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  bool exists(const std::string& name) const {
    return std::filesystem::exists(std::filesystem::symlink_status(*this / name));
  }
  UniqueFd open_dir(const std::string& name) const {
    std::filesystem::create_directories(*this / name);
    return UniqueFd(::open((*this / name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

 private:
  std::string path_;
};

}  // namespace cacheshim
