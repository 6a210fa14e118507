// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "shim/routing/path_gate.h"
#include "shim/routing/path_match.h"
#include "shim/routing/routed_path.h"
#include "shim/routing/routes.h"

// Decides where paths lead. Pure logic over text: it knows neither the mount nor libc's symbols, allocates nothing, and
// does not change after open(). So any thread and any signal handler may use it.
//
//   a path                     while the mount serves            once it is gone
//   MOUNT/NAME/x               MOUNT/.jobs/JOB/NAME/x            DEFAULT/x
//   MOUNT/.jobs/JOB/NAME/x     itself                            DEFAULT/x
//   DEFAULT/x                  MOUNT/.jobs/JOB/NAME/x            itself
//
// In two cases, MOUNT/x is unchanged and DEFAULT/x goes to MOUNT/NAME/x: if the process does not know its job (the
// daemon then finds the caller's job), and in a bound view.
namespace cacheshim {

class Router {
 public:
  // Returns true if both paths lead to the same directory. The router calls this function only
  // where the text is not sufficient: for paths with "..", and in find_place() for a job's name that
  // is not the name of this process's job.
  using SameDirectory = bool (*)(const char* a, const char* b);

  constexpr Router() = default;

  // Set up the routes before calling open().
  Routes& routes() { return routes_; }
  const Routes& routes() const { return routes_; }

  // Requires: the mount is set. Before this call, may_match() returns false.
  void open();
  // Returns false only if route() would leave the path unchanged. Takes a few instructions.
  bool may_match(const char* path) const { return gate_.lets_pass(path); }

  // Routes a path while the mount serves, as in the table above. Requires: the path is absolute.
  RoutedPath route(const char* path, PathBuffer& out, SameDirectory same_directory) const {
    return route(path, out, same_directory, 3);
  }
  // Finds a default path whose last components are the first components of the relative path `path`; for example,
  // HOME/.triton/cache for ".triton/cache/x". The path is in this route only if the caller's directory is the first
  // `directory_length` bytes of the default path; complete_relative() then returns the routed path. Several default
  // paths may match: call with `candidate` 0, 1, … until the returned route is kNoRoute.
  struct Relative {
    std::size_t route = kNoRoute;
    std::size_t directory_length = 0;  // in the default path's text
    std::size_t rest = 0;           // in the relative path
  };
  Relative match_relative(const char* path, std::size_t candidate) const;
  RoutedPath complete_relative(const char* path, const Relative& match, PathBuffer& out) const;

  // The result of parsing the kernel's name of an object in the caller's view.
  struct Place {
    std::string_view name;  // NAME, in the given path; empty if the object is not in the view
    std::size_t rest = 0;   // where the part after NAME begins
  };
  Place find_place(const char* path, SameDirectory same_directory) const;
  // Writes DEFAULT/x into `out` if `route` is a route of the place's NAME, and otherwise
  // MOUNT/NAME/x. Returns `path` if the result does not fit.
  const char* restore(const char* path, const Place& place, std::size_t route,
                      PathBuffer& out) const;

  // Routes a path after the mount is gone, as in the table above. A path that is not in the table
  // is kForeign.
  RoutedPath fall_back(const char* path, PathBuffer& out, SameDirectory same_directory) const;

  // If route() or complete_relative() has written a path MOUNT/.jobs/JOB/NAME/x into `out`, replaces it with
  // MOUNT/NAME/x, so that the daemon chooses the view at each call. Does not change MOUNT/.jobs/JOB/NAME itself:
  // MOUNT/NAME is a symlink, so it would name a different object.
  void leave_view(RoutedPath& routed, PathBuffer& out) const;

 private:
  struct Found {
    PathMatch match;
    std::size_t route = kNoRoute;  // kNoRoute for the mount itself
    std::size_t name = 0;          // where NAME ends, in a path below MOUNT/NAME
  };

  bool confirm(std::string_view path, std::string_view prefix, const PathMatch& match,
               SameDirectory same_directory) const;
  Found find_in_mount(std::string_view path, SameDirectory same_directory) const;
  Found find(std::string_view path, SameDirectory same_directory) const;
  bool leaves(std::string_view path, const Found& found, std::string_view name,
              SameDirectory same_directory) const;
  // `turns`: how often the path may leave a route by ".."; each turn needs a buffer on the stack.
  RoutedPath route(const char* path, PathBuffer& out, SameDirectory same_directory,
                   int turns) const;
  RoutedPath route_parent(std::string_view path, const Found& found, PathBuffer& out,
                          SameDirectory same_directory, int turns) const;
  RoutedPath rewrite(std::string_view path, const Found& found, PathBuffer& out) const;
  static bool is_own_name(std::string_view rest);

  PathGate gate_;
  Routes routes_;
};

}  // namespace cacheshim
