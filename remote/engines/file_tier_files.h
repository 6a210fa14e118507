// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <time.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

// The files and directories in FileTier's directory, and the file server's clock.
//
// The functions are thread-safe, and do not own the descriptors that they get. Errors are those of the system calls,
// unless stated otherwise; ESTALE if another machine has removed the object meanwhile.
namespace cacheshim::remote::file_tier {

using ServerTime = std::chrono::nanoseconds;  // since 1970, by the file server's clock

constexpr int kDirectory = O_PATH | O_DIRECTORY;
constexpr int kRead = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;  // opening a FIFO must not block

// The open directory of a FileTier.
struct Root {
  UniqueFd fd;
  mode_t mode;  // permission bits of everything that is created below
};

enum class Missing { kFail, kCreate };

// Opens the directory whose path below the root consists of `names`. Creates missing directories if `missing` is
// kCreate. Errors: ENOENT if a directory is missing and `missing` is kFail.
Result<UniqueFd> open_dirs(const Root& root, std::initializer_list<std::string> names,
                           Missing missing);

// As sys::open_beneath(), but asks the file server before it returns ENOENT.
Result<UniqueFd> find(int dir, const std::string& name, int flags);

// Returns all names in a directory, sorted, as the file server has them.
Result<std::vector<std::string>> names_in(int dir);

// Returns the beginning of a file, which includes an object's whole header, or a whole lease.
Result<std::string> read_start(int fd);

// Returns the time, limited to 0 to 9e9 s, so that it fits into 64 bits.
ServerTime time_of(const timespec& time);

// Sets the times of a file or directory to the present, by the file server's clock.
Status touch(int fd);

// Returns the modification time, as the file server has it.
Result<ServerTime> modified_at(int fd);

// Touches a file or directory, and returns the file server's time. For a directory, NFS delegations cannot make the
// client use its own clock (RFC 9754).
Result<ServerTime> touch_and_read_time(int fd);

// A new file in tmp/. The destructor removes its name there. Not thread-safe.
class Staged {
 public:
  // `tmp` must stay open.
  explicit Staged(int tmp) : tmp_(tmp) {}
  ~Staged();
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  int fd() const { return file_.get(); }

  // Creates the file, writes it and syncs it. Requires: `mode` includes w. An NFS server may give the file to another
  // owner ("all_squash"), and link(2) requires the right to write to another owner's file (proc(5),
  // protected_hardlinks).
  Status write(mode_t mode, std::string_view header, std::string_view body);

  // Gives the file its final name. Errors: EEXIST if another file has the name. If an NFS server's reply is lost, the
  // client repeats the request, and the server may then answer EEXIST because the first request has succeeded. Such a
  // call counts as successful.
  Status link_to(int dir, const std::string& name) const;

 private:
  const int tmp_;
  std::string name_;
  UniqueFd file_;
};

}  // namespace cacheshim::remote::file_tier
