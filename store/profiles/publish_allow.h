// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

namespace cacheshim {

// The configuration's [publish] allow: the users, groups and jobs that may publish. The work of all
// others stays in their layers.
struct PublishAllow {
  std::set<unsigned> users;       // user ids
  std::set<unsigned> groups;      // group ids, which may be supplementary groups
  std::vector<std::string> jobs;  // patterns of fnmatch(3) for job ids that the cgroup proves
  std::string text;               // the whole table, for messages
};

}  // namespace cacheshim
