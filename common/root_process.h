// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>

#include "common/job_id.h"

// Which environment variables a root process trusts. sudo and similar programs can pass a user's
// variables on to root (`sudo -E`, env_keep). A variable must not lead root to a mount or a run
// directory of another user. A process can check who owns such a directory, but not who has chosen
// the paths in CACHESHIM_ROUTES and CACHESHIM_LOG: root ignores these if sudo may have kept them.
namespace cacheshim {

// A user namespace, as /proc/self/uid_map describes it.
struct UserNamespace {
  // The namespace has one user. Its uid 0 has no more rights to files than that user.
  bool has_one_user = false;
  uid_t outside_root = 0;  // uid 0 of the namespace, as the parent namespace names it

  // Whether uid 0 of the namespace may use a mount that `owner` has mounted (FUSE's user_id).
  bool root_may_use_mount_of(uid_t owner) const {
    return owner == 0 || owner == outside_root || has_one_user;
  }
};
// Returns the initial namespace for an empty text: a kernel without user namespaces has no such file.
UserNamespace parse_uid_map(std::string_view text);

// Whether sudo, doas or pkexec has started this process of root, or an ancestor, for another user.
bool has_environment_of_another_user(const Environment& environment);

}  // namespace cacheshim
