// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"

// Creates an object in a directory of the layer. The service account makes the system calls, but
// the object gets the attributes that it would have if the requesting process had created it.
namespace cacheshim {

// The attributes of the requesting process that determine those of the new object.
struct Maker {
  uid_t uid;
  gid_t gid;
  mode_t umask;
};

// The object to create. Without a maker, the object belongs to the service account, with exactly
// this mode.
struct NewObject {
  NewObject(mode_t wanted_mode) : mode(wanted_mode) {}  // NOLINT: most callers pass only a mode
  NewObject(mode_t wanted_mode, dev_t wanted_device, std::optional<Maker> made_by)
      : mode(wanted_mode), device(wanted_device), maker(made_by) {}

  mode_t mode;
  dev_t device = 0;
  std::optional<Maker> maker;
};

// With a maker, the object belongs to the maker. In a directory with the set-group-id bit, the object gets the
// directory's group, and a new directory also gets the bit. The object inherits the directory's default ACL; without a
// default ACL, the maker's umask applies. If the daemon may not change owners (not root), the service account remains
// the owner, and the object gets no set-id bits. Until the call returns, other processes may see the object with the
// service account as its owner. `dir` and `name` are as PathRoot::at() passes them: `name` is a path if `dir` is on a
// mount that follows no symlinks, otherwise a single name. `directory` is not an O_PATH descriptor. Requires: the
// process's umask is 0. Thread-safe. Errors: those of the system calls. After an error, no object remains.
Result<UniqueFd> make_file_as(int dir, const std::string& name, int flags, const NewObject& wanted);
Result<UniqueFd> make_tmpfile_as(int directory, int flags, const NewObject& wanted);
Status make_dir_as(int dir, const std::string& name, const NewObject& wanted);
Status make_node_as(int dir, const std::string& name, const NewObject& wanted);
// Uses only the maker of `wanted`.
Status make_symlink_as(const std::string& target, int dir, const std::string& name,
                       const NewObject& wanted);

// Changes the owner of the object behind `fd`, which may be any kind of descriptor. Returns false
// if that is not permitted: the service account is not root, or the daemon's user namespace does
// not map the id. The object then stays unchanged.
Result<bool> change_owner(int fd, uid_t uid, gid_t gid);

inline constexpr const char* kAccessAcl = "system.posix_acl_access";
inline constexpr const char* kCapability = "security.capability";
inline constexpr const char* kDefaultAcl = "system.posix_acl_default";

}  // namespace cacheshim
