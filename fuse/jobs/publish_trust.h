// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "fuse/jobs/caller.h"
#include "fuse/jobs/cgroup_proof.h"
#include "store/profiles/publish_allow.h"

namespace cacheshim {

// Decides whose changes may enter the base: compares [publish] allow with the kernel's data about a
// caller, never with a process's own claims. Thread-safe.
class PublishTrust {
 public:
  // Without a value, everybody may publish.
  explicit PublishTrust(std::optional<PublishAllow> allow);

  bool is_restricted() const { return allow_.has_value(); }
  // Returns why the caller's changes may not be published, for messages; "" if they may. Reads /proc, which takes some
  // 20 µs, unless the caller's uid or primary group is allowed.
  std::string why_refused(const Caller& caller) const;
  bool may_publish(const Caller& caller) const {
    return !is_restricted() || why_refused(caller).empty();
  }
  // Describes the users who may publish, for `status`.
  std::string text() const;

 private:
  bool is_in_groups(const Caller& caller) const;
  bool is_of_jobs(const Caller& caller) const;

  const std::optional<PublishAllow> allow_;
  const CgroupProof cgroups_;
};

}  // namespace cacheshim
