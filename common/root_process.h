// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string_view>

#include "common/job_id.h"

// Decides which environment variables a root process trusts. sudo and similar programs can pass a user's variables on
// to root (`sudo -E`, env_keep). A variable must not lead root to a mount or a run directory of another user. A process
// can check who owns such a directory, but not who set CACHESHIM_ROUTES and CACHESHIM_LOG. So a root process ignores
// these two variables if they may come from another user's environment.
namespace cacheshim {

// A user namespace, as /proc/self/uid_map describes it.
struct UserNamespace {
  // Whether the namespace maps a single uid. Its uid 0 then has no more rights to files than the user
  // outside the namespace to whom it is mapped.
  bool has_one_user = false;
  uid_t outside_root = 0;  // the uid in the parent namespace to which uid 0 is mapped

  // Whether uid 0 of the namespace may use a mount that `owner` has mounted (FUSE's user_id).
  bool root_may_use_mount_of(uid_t owner) const {
    return owner == 0 || owner == outside_root || has_one_user;
  }
};
// Parses the text of /proc/self/uid_map. For an empty text, returns the initial namespace: a kernel
// without user namespaces does not have this file.
UserNamespace parse_uid_map(std::string_view text);

// Whether another user has started this root process, or an ancestor of it, by sudo, doas or pkexec.
bool has_environment_of_another_user(const Environment& environment);

}  // namespace cacheshim
