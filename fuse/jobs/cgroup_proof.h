// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/job_id.h"

namespace cacheshim {

// Determines the SLURM job of a process, if the kernel's data prove it. The text of
// /proc/PID/cgroup alone proves nothing: systemd delegates a subtree of the cgroup hierarchy to each
// user, who may create a directory job_4711 there and move a process into it. So every directory
// from the top of the hierarchy to the job's directory must belong to root and be writable only by
// root. Then only root can have created the job's directory and moved the process into it.
class CgroupProof {
 public:
  // `mountinfo`: the text of /proc/self/mountinfo. Hierarchies that are mounted later are unknown.
  explicit CgroupProof(std::string_view mountinfo);

  // For this process's own mounts.
  static CgroupProof of_this_process();

  // Returns the job that a /proc/PID/cgroup text proves; empty if there is none. Thread-safe.
  JobId job_of(std::string_view cgroup_text) const;
  // Whether this machine has SLURM's cgroup directories. Lists a few directories. Thread-safe.
  bool has_slurm() const;

 private:
  struct Tree {
    std::string controllers;  // cgroup v1: the super block's options, which include the controllers; v2: ""
    std::string root;         // the path, within the hierarchy, of the directory that is mounted
    std::string mount_point;
  };
  bool is_roots_own(std::string_view controllers, std::string_view path) const;

  std::vector<Tree> trees_;
};

}  // namespace cacheshim
