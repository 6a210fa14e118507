// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/routing/path_gate.h"
#include "shim/routing/path_match.h"
#include "shim/routing/routed_path.h"

// Decides where paths lead. Pure logic over text: it knows neither the mount nor libc's symbols,
// allocates nothing, and does not change after the constructor, so that any thread and any signal
// handler may use it.
//
//   a path                     while the mount serves            once it is gone
//   MOUNT/NAME/x               MOUNT/.jobs/JOB/NAME/x            DEFAULT/x
//   MOUNT/.jobs/JOB/NAME/x     itself                            DEFAULT/x
//   DEFAULT/x                  MOUNT/.jobs/JOB/NAME/x            itself
//
// If the process has no JOB of its own (the daemon then finds the caller's job), and in a bound
// view, MOUNT/x is unchanged and DEFAULT/x goes to MOUNT/NAME/x.
namespace cacheshim {

class Router {
 public:
  // Whether two paths lead to one directory. Called only for paths in which ".." occurs before the
  // end of a prefix.
  using SameDirectory = bool (*)(const char* a, const char* b);

  constexpr Router() = default;

  // `mount` is absolute and plain; `job` may be empty. Call first. Returns false if they do not
  // fit; then nothing is routed.
  bool set_mount(std::string_view mount, std::string_view job);
  // Adds DEFAULT of NAME for fall_back, and for routing to the mount if `routed`. `default_path` is
  // absolute, and is normalized here. Returns false if it is not an absolute path, is below the
  // mount or does not fit.
  bool add_route(std::string_view name, std::string_view default_path, bool routed);
  // Returns MOUNT/NAME as a permanent NUL-terminated string, or null if there is no space for it.
  const char* path_of_name(std::string_view name);

  // Before this call, may_match() returns false.
  void open() { gate_.open(); }
  // Returns false only for a path that route() would leave unchanged. Takes a few instructions.
  bool may_match(const char* path) const { return gate_.lets_pass(path); }

  // Requires: the path is absolute.
  RoutedPath route(const char* path, PathBuffer& out, SameDirectory same_directory) const {
    return route(path, out, same_directory, 3);
  }
  // For a relative path that begins with the end of a default path, such as ".triton/cache/x":
  // writes the directory that the path must be relative to into `out`. Count `candidate` up from 0
  // until nothing is returned. If the caller is in that directory, complete_relative() returns the
  // route.
  struct Relative {
    std::size_t route = kNoRoute;
    std::size_t directory_length = 0;  // in the default path's text
    std::size_t rest = 0;           // in the relative path
  };
  Relative match_relative(const char* path, std::size_t candidate) const;
  std::string_view default_path(std::size_t route) const { return routes_[route].from; }
  RoutedPath complete_relative(const char* path, const Relative& match, PathBuffer& out) const;

  // The result of parsing the kernel's name of an object in the caller's view.
  struct Place {
    std::string_view name;  // NAME, in the given path; empty if the object is not in the view
    std::size_t rest = 0;   // where the part after NAME begins
  };
  Place find_place(const char* path, SameDirectory same_directory) const;
  // Writes DEFAULT/x of `route` into `out`, or MOUNT/NAME/x for a route with other names; returns
  // `path` if that does not fit.
  const char* restore(const char* path, const Place& place, std::size_t route,
                      PathBuffer& out) const;
  std::string_view route_name(std::size_t route) const { return routes_[route].name; }
  std::size_t size() const { return route_count_; }

  // Returns the route of a path after the mount is gone; kForeign means that the path is unchanged.
  RoutedPath fall_back(const char* path, PathBuffer& out, SameDirectory same_directory) const;

  // For a path that route() or complete_relative() wrote into `out`: substitutes MOUNT/NAME/x for
  // MOUNT/.jobs/JOB/NAME/x, so that the daemon chooses the view at each call. A path that is NAME
  // itself is not changed: it would become the symlink.
  void leave_view(RoutedPath& routed, PathBuffer& out) const;

  std::string_view mount() const { return mount_; }
  std::string_view job() const;                    // empty if the daemon decides
  std::string_view view() const { return view_; }  // the prefix that replaces default paths

 private:
  struct Route {
    std::string_view name;
    std::string_view from;
    bool routed = false;
  };
  struct Found {
    PathMatch match;
    std::size_t route = kNoRoute;  // kNoRoute: the mount itself
    std::size_t name = 0;          // where NAME ends in a path that leaves MOUNT/NAME by ".."
  };

  std::string_view keep(std::string_view a, std::string_view b = {}, std::string_view c = {});
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
  std::size_t route_of_name(std::string_view name) const;

  PathGate gate_;
  std::string_view mount_;
  std::string_view view_;
  bool moves_mount_paths_ = false;
  Route routes_[kMaxRoutes] = {};
  std::size_t route_count_ = 0;
  char text_[32768] = {};
  std::size_t text_length_ = 0;
};

}  // namespace cacheshim
