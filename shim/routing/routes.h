// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "shim/routing/routed_path.h"

namespace cacheshim {

// A default path, and the directory of the mount that replaces it.
struct Route {
  std::string_view name;          // the name of the directory in the mount
  std::string_view default_path;  // absolute and plain
  // Whether the router sends the default path to the mount. If not, the default path is only the fallback for the
  // mount's path after the mount is gone.
  bool is_routed = false;
};

// The mount's path, the job's view and the routes. The library's constructor sets them up, in this
// object's own memory. After that they do not change, so any thread and any signal handler may read
// them. All strings end with a NUL.
class Routes {
 public:
  constexpr Routes() = default;

  // Call first. Requires: `mount` is absolute and plain; `job` may be empty. Returns false if the paths do not fit;
  // nothing is then routed.
  bool set_mount(std::string_view mount, std::string_view job);
  // Adds a route from `default_path`, which this function normalizes, to NAME; Route::is_routed
  // explains `is_routed`. Returns false if `default_path` is relative, contains ".." or is below
  // the mount, or if the route does not fit.
  bool add(std::string_view name, std::string_view default_path, bool is_routed);
  // Returns MOUNT/NAME as a string that stays valid, or null if there is no space for it.
  const char* path_of_name(std::string_view name);

  std::string_view mount() const { return mount_; }
  std::string_view view() const { return view_; }  // MOUNT/.jobs/JOB, or MOUNT if there is no job
  std::string_view job() const;                    // empty if the daemon chooses the job
  bool has_job() const { return has_job_; }

  std::size_t size() const { return count_; }
  const Route& operator[](std::size_t route) const { return routes_[route]; }
  // Returns the first route of NAME, or kNoRoute.
  std::size_t find(std::string_view name) const;

 private:
  std::string_view keep(std::string_view a, std::string_view b = {}, std::string_view c = {});

  std::string_view mount_;
  std::string_view view_;
  bool has_job_ = false;
  Route routes_[kMaxRoutes] = {};
  std::size_t count_ = 0;
  char text_[32768] = {};
  std::size_t text_length_ = 0;
};

}  // namespace cacheshim
