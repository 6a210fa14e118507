// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "tests/parity/side.h"

namespace cacheshim::parity {

// The owner of the files in a case with several users.
inline constexpr uid_t kOwnerId = 20001;

struct User {
  const char* name;
  uid_t uid;
  gid_t gid;
  std::vector<gid_t> groups;  // supplementary groups
};

// Calls `body` in a child process of this user, with umask 022, and adds the lines that `body`
// records to `side`. Returns when the child has exited. Requires: the caller is root.
void as_user(Side& side, const User& user, const std::function<void(Side&)>& body);

}  // namespace cacheshim::parity
