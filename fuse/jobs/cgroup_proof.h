// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/job_id.h"

namespace cacheshim {

// SLURM's jobs as the kernel proves them. The text of /proc/PID/cgroup alone proves nothing: who has been
// given a part of the tree, as each user is by systemd, may make a folder job_4711 there and move into it.
// So every folder from the top of the tree to the job's must be root's and open to nobody else's writing:
// then root has made it, and has put the process there.
class CgroupProof {
 public:
  // `mountinfo`: the text of /proc/self/mountinfo. Trees that are mounted later are not known.
  explicit CgroupProof(std::string_view mountinfo);

  // The job that a /proc/PID/cgroup text names in a proved way; empty for none. Thread-safe.
  JobId job_of(std::string_view cgroup_text) const;

 private:
  struct Tree {
    std::string controllers;  // as the middle field of a line has them; "" for version 2
    std::string root;         // of the hierarchy, at the mount point
    std::string mount_point;
  };
  bool is_roots_own(std::string_view controllers, std::string_view path) const;

  std::vector<Tree> trees_;
};

}  // namespace cacheshim
