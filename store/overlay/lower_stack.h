// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/overlay/server_misses.h"
#include "store/sys/path_root.h"
#include "store/sys/sys.h"

// The read-only directories below a job's own layer: one directory (a store's base), or several.
// Directories of the same name in several lowers are merged; any other object hides the objects of
// the same name in the lowers below it.
//
// The class caches no names, because other processes may change the lowers at any time. With one lower, a lookup is one
// system call; with several, each lookup merges all directories on the path. A lower hides objects of the lowers below
// it by cacheshim's markers (whiteout.h) or by the markers of kernel overlayfs: character devices 0:0, and directories
// whose xattr trusted.overlay.opaque or user.overlay.opaque is "y" (overlayfs.rst, "whiteouts and opaque directories";
// OCI image-spec, layer.md). list() shows neither kind of marker; find() and open() do not reject the names of
// cacheshim's markers. Thread-safe; paths are as in paths.h.
namespace cacheshim {

class LowerStack {
 public:
  struct Object {
    UniqueFd fd;
    std::size_t lower;  // the index of its lower, 0 for the bottom
  };

  // `directories`, the topmost first, must not be empty, and must stay open as long as the stack exists. If there is
  // only one, and other machines can change it, the stack asks the file server about absent names (ServerMisses).
  explicit LowerStack(const std::vector<int>& directories);
  LowerStack(const std::vector<int>& directories, std::unique_ptr<ServerMisses> server_misses);

  // Returns the topmost object of this name, without following symlinks. Errors: ENOENT; ENOTDIR or
  // ELOOP if a component of the path is not a directory.
  Result<struct stat> find(const std::string& path) const;
  // Opens the topmost object of this name; adds O_NOFOLLOW to `flags`. Errors: as for find().
  Result<Object> open(const std::string& path, int flags) const;
  // Returns all names of a merged directory, without markers.
  Result<std::vector<sys::DirEntry>> list(const std::string& path) const;

  // Null if there are several lowers, or if only this machine can change the one lower. Valid during the stack's
  // lifetime.
  ServerMisses* server_misses() const { return server_misses_.get(); }

  // find_device() returns the bottommost lower that is on the file system `device`; nothing if none
  // is. device_of() returns the file system of a lower.
  std::optional<std::size_t> find_device(dev_t device) const;
  std::optional<dev_t> device_of(std::size_t lower) const;

 private:
  using Directories = std::vector<Object>;  // the parts of one merged directory, topmost first

  Result<Directories> open_directories(std::string_view path) const;
  Result<Object> open_merged(const std::string& path) const;
  static Result<Directories> descend(const Directories& directories, const std::string& name);
  static Result<Object> find_topmost(const Directories& directories, const std::string& name);
  static bool hides_below(const Object& directory, const std::string& name);

  // Calls `lookup` and returns its result. If the name is absent, and ServerMisses then asks the file server, repeats
  // the call.
  template <class Lookup>
  std::invoke_result_t<Lookup> find_on_server(const std::string& path, Lookup&& lookup) const;

  const std::vector<int> directories_;
  const std::unique_ptr<ServerMisses> server_misses_;
  std::vector<PathRoot> roots_;
  std::vector<dev_t> devices_;  // from the bottom up
};

}  // namespace cacheshim
