// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "tests/parity/side.h"

namespace cacheshim::parity {

// Who owns the files of a case that several users work on.
inline constexpr uid_t kOwnerId = 20001;

struct User {
  const char* name;
  uid_t uid;
  gid_t gid;
  std::vector<gid_t> groups;  // supplementary
};

// Does `body` on the side in a process of this user, and records what it recorded there. The
// caller must be root. The process has the umask 022, and is gone when this returns.
void as_user(Side& side, const User& user, const std::function<void(Side&)>& body);

}  // namespace cacheshim::parity
