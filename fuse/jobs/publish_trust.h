// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "fuse/jobs/caller.h"
#include "fuse/jobs/cgroup_proof.h"
#include "store/profiles/publish_allow.h"

namespace cacheshim {

// Whose changes may come into the base: [publish] allow, held against what the kernel says of a caller,
// never against what a process says of itself. Thread-safe.
class PublishTrust {
 public:
  // Nothing: everybody may publish.
  explicit PublishTrust(std::optional<PublishAllow> allow);

  bool is_restricted() const { return allow_.has_value(); }
  // Why what the caller changes is not published, for people; "" where it is. Of a caller that is allowed
  // by its user or group at once, else by a look into /proc, some 20 µs.
  std::string why_refused(const Caller& caller) const;
  bool may_publish(const Caller& caller) const {
    return !is_restricted() || why_refused(caller).empty();
  }
  // Who may publish, for `status`.
  std::string text() const;

 private:
  bool is_in_groups(const Caller& caller) const;
  bool is_of_jobs(const Caller& caller) const;

  const std::optional<PublishAllow> allow_;
  const CgroupProof cgroups_;
};

}  // namespace cacheshim
