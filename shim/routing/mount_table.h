// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

// Finds the cacheshim mount in the text of /proc/self/mountinfo (proc_pid_mountinfo(5)), which
// says what is mounted without a word to the daemon: a look at the path itself would wait for it.
namespace cacheshim {

enum class MountKind {
  kNone,       // nothing there, or another file system
  kWhole,      // the mount with its .jobs and .cacheshim
  kBoundView,  // one job's view, bind-mounted
};

struct MountState {
  MountKind kind = MountKind::kNone;
  unsigned major = 0;  // the device number, as stat(2) gives it for files of the mount
  unsigned minor = 0;
};

// Reads mountinfo in pieces of any size: lines grow long (an overlay of 100 layers), but all that is
// wanted stands in their first bytes.
class MountScanner {
 public:
  // `path`: absolute and plain; must outlive the scanner.
  explicit MountScanner(std::string_view path) : path_(path) {}

  void feed(std::string_view bytes);
  // What is mounted at the path: of several mounts the last, which covers the others.
  MountState finish();

 private:
  void end_line();

  std::string_view path_;
  std::array<char, 8192> line_{};
  std::size_t length_ = 0;  // bytes of the line so far; what is beyond line_ is dropped
  MountState state_;
};

}  // namespace cacheshim
