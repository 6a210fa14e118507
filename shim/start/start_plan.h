// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/job_id.h"
#include "common/route_table.h"
#include "shim/routing/routes.h"

// The decisions of a starting process, made from text alone: its environment, its cgroup and the
// routes.
namespace cacheshim {

// Carries out the decisions. Strings end with a NUL and stay valid.
class StartActions {
 public:
  // Requests a value for a variable. Takes effect only after all decisions, because the decisions
  // read the environment.
  virtual void set_variable(const char* name, const char* value) = 0;
  // Whether `path` leads through a symlink to `directory` (MOUNT/NAME). readlink(2) of such a path succeeds wherever
  // the symlink is in the path, because MOUNT/NAME is a symlink too.
  virtual bool leads_to(const char* path, const char* directory) = 0;
  // Reports an unusable item of CACHESHIM_ROUTES.
  virtual void refuse_route(std::string_view item) = 0;

 protected:
  ~StartActions() = default;
};

// Returns the job whose view a process may name by path. Returns an empty id if the daemon must
// decide: the environment names no job, or it names a SLURM job and the cgroup names another one.
JobId job_of_process(const Environment& environment, std::string_view cgroup_text);

// Adds the profiles' routes to `routes`. Requires: the mount of `routes` is set. Sets a family's variable to MOUNT/NAME
// if the variable is not set. If the variable names a path elsewhere, or if one of the family's `unless` variables is
// set, leaves the variable and the default path alone: the route is then only the fallback for paths of the mount. If
// the variable leads to the family's directory of the mount through a symlink, by a relative path or in another
// spelling, sets the variable to MOUNT/NAME: programs write the variable's path into their entries, and other jobs know
// only MOUNT/NAME.
void plan_profiles(const Environment& environment, const RouteTable& table, Routes& routes,
                   StartActions& actions);

// Adds the routes of CACHESHIM_ROUTES, /PATH=NAME:/PATH2=NAME2.
void plan_own_routes(const Environment& environment, Routes& routes, StartActions& actions);

}  // namespace cacheshim
