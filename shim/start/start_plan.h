// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "common/job_id.h"
#include "common/route_table.h"
#include "shim/routing/router.h"

// What a starting process does, decided from text alone: its environment, its cgroup and the
// routes.
namespace cacheshim {

// Tells the caller what to do or to say. Strings end with a NUL and stay valid.
class StartActions {
 public:
  // To be set once all decisions have been made: it may move the environment.
  virtual void set_variable(const char* name, const char* value) = 0;
  // Whether `path` is a symlink, or has one before its last name, that leads to `directory`. Every
  // MOUNT/NAME is a symlink.
  virtual bool leads_to(const char* path, const char* directory) = 0;
  // An item of CACHESHIM_ROUTES that cannot be used.
  virtual void refuse_route(std::string_view item) = 0;

 protected:
  ~StartActions() = default;
};

// The job whose view a process may name by path, or an empty id where the daemon is to decide: the
// environment names none, or it names a SLURM job and the cgroup another one.
JobId job_of_process(const Environment& environment, std::string_view cgroup_text);

// Adds the profiles' routes to `router`, whose mount is set. A family whose variable is set to a
// path elsewhere, or one of whose `unless` variables is set, is left alone. If its variable leads
// to the family's directory of the mount by a symlink, from the working directory, or in another
// spelling, the variable is set to the mount's path: programs write it into their entries, and
// other jobs know that path alone.
void plan_profiles(const Environment& environment, const RouteTable& table, Router& router,
                   StartActions& actions);

// Adds the routes of CACHESHIM_ROUTES, /PATH=NAME:/PATH2=NAME2.
void plan_own_routes(const Environment& environment, Router& router, StartActions& actions);

}  // namespace cacheshim
