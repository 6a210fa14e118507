// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

namespace cacheshim {

// The configuration's [publish] allow: the users, groups and jobs that may publish. The files of all
// other jobs stay in their layers.
struct PublishAllow {
  std::set<unsigned> users;       // user ids
  std::set<unsigned> groups;      // group ids, which may be supplementary groups
  // Patterns of fnmatch(3); apply to the job id that the process's cgroup proves.
  std::vector<std::string> jobs;
  std::string text;               // the whole table, for messages
};

}  // namespace cacheshim
