// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string_view>

// Finds the cacheshim mount in the text of /proc/self/mountinfo (proc_pid_mountinfo(5)). mountinfo
// lists mounts without a request to the daemon, whereas a stat of the path would wait for the
// daemon.
namespace cacheshim {

enum class MountKind {
  kNone,       // no mount, or another file system
  kWhole,      // the whole mount, with .jobs and .cacheshim
  kBoundView,  // one job's view, bind-mounted
  kForbidden,  // mounted by a user whose mounts this process must not use (root_process.h)
};

struct MountState {
  MountKind kind = MountKind::kNone;
  unsigned major = 0;  // the device number, as stat(2) gives it for files of the mount
  unsigned minor = 0;
  // The uid of the user who made the mount, from user_id= in mountinfo; -1 if it is not known.
  uid_t owner = static_cast<uid_t>(-1);
};

// Reads mountinfo in pieces of any size. A line can be long (an overlay of 100 layers), but all fields
// that a line of a cacheshim mount must have are in its first 8 KiB.
class MountScanner {
 public:
  // `path`: absolute and plain; must outlive the scanner.
  explicit MountScanner(std::string_view path) : path_(path) {}

  void feed(std::string_view bytes);
  // Returns the mount at the path. Of several mounts at the path, returns the last one, which
  // covers the others.
  MountState finish();

 private:
  void end_line();

  std::string_view path_;
  std::array<char, 8192> line_{};
  std::size_t length_ = 0;  // length of the line so far; bytes beyond line_ are dropped
  MountState state_;
};

}  // namespace cacheshim
