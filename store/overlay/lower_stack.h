// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/sys/path_root.h"
#include "store/sys/sys.h"

// What lies below a job's own layer, read-only: one folder (a store's base), or several of which each
// hides what the next have under the same names.
//
// Nothing is cached: others may change the lowers at any time. With one lower a look is one system
// call; with several each folder on the way is merged afresh. A lower hides what lies further down by
// our markers (whiteout.h) and by those of kernel overlayfs: character devices 0:0, and the xattr
// overlay.opaque "y" of a folder, trusted or user. Neither is ever shown. Sources: overlayfs.rst,
// "whiteouts and opaque directories"; OCI image-spec, layer.md. Thread-safe; paths are as in paths.h.
namespace cacheshim {

class LowerStack {
 public:
  struct Object {
    UniqueFd fd;
    std::size_t lower;  // which one it is in, 0 for the bottom
  };

  // Folders that stay open and outlive the stack, the topmost first; at least one.
  explicit LowerStack(const std::vector<int>& folders);

  // The topmost object of this name, symlinks as such. Errors: ENOENT, ENOTDIR or ELOOP where
  // something on the way is no folder.
  Result<struct stat> find(const std::string& path) const;
  // The same, opened; O_NOFOLLOW is added to `flags`.
  Result<Object> open(const std::string& path, int flags) const;
  // All names of a merged folder, markers left out.
  Result<std::vector<sys::DirEntry>> list(const std::string& path) const;

  // The lowest lower on this file system, and the file system of a lower; nothing for a file system without
  // a lower.
  std::optional<std::size_t> find_device(dev_t device) const;
  std::optional<dev_t> device_of(std::size_t lower) const;

 private:
  using Folders = std::vector<Object>;  // that are merged into one, the topmost first

  Result<Folders> open_folders(std::string_view path) const;
  Result<Object> open_merged(const std::string& path) const;
  static Result<Folders> descend(const Folders& folders, const std::string& name);
  static Result<Object> find_topmost(const Folders& folders, const std::string& name);
  static bool hides_below(const Object& folder, const std::string& name);

  const std::vector<int> folders_;
  std::vector<PathRoot> roots_;
  std::vector<dev_t> devices_;  // from the bottom up
};

}  // namespace cacheshim
