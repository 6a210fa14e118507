// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/capability.h>

#include <array>

namespace cacheshim {

// While this object exists, the thread that created it cannot use the blocks that the file system of the open file `fd`
// reserves for root (mke2fs(8), -m). The file system gives these blocks to root's user id and to threads with
// CAP_SYS_RESOURCE. So the constructor changes the thread's file-system user id and drops this capability, and the
// destructor restores both. The thread keeps its other capabilities, because without CAP_FSETID a write would clear the
// file's set-id bits. Does nothing if the process is not root, or if the file system reserves no blocks for a user id.
// The object takes 2 µs less if the thread has SECBIT_NO_SETUID_FIXUP (capabilities(7)), because setfsuid(2) then does
// not change the thread's capabilities.
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
