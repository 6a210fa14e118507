// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "common/result.h"
#include "common/unique_fd.h"

// Making an object in a folder of the layer, by the service account, as if its caller had made it.
namespace cacheshim {

// The caller, as far as it matters to what it makes.
struct Maker {
  uid_t uid;
  gid_t gid;
  mode_t umask;
};

// What is to be made. Without a maker it is the service account's, with exactly this mode.
struct NewObject {
  NewObject(mode_t wanted_mode) : mode(wanted_mode) {}  // NOLINT: a plain mode is most callers' all
  NewObject(mode_t wanted_mode, dev_t wanted_device, std::optional<Maker> made_by)
      : mode(wanted_mode), device(wanted_device), maker(made_by) {}

  mode_t mode;
  dev_t device = 0;
  std::optional<Maker> maker;
};

// With a maker: the object is the maker's, but a folder with the set-group-id bit hands down its
// group, and to folders the bit; the default ACL of the folder is inherited, and where it has none
// the maker's umask counts. Where we may not give objects away (not root), the object stays the service
// account's, without set-id bits. Until the call returns others may see it as such.
// `dir` and `name` are as PathRoot::at() gives them: a path where no symlink on it is followed, else a
// single name; `folder` is open, no O_PATH descriptor. Thread-safe while the process's umask is 0.
// Errors: those of the calls made; nothing is left then.
Result<UniqueFd> make_file_as(int dir, const std::string& name, int flags, const NewObject& wanted);
Result<UniqueFd> make_tmpfile_as(int folder, int flags, const NewObject& wanted);
Status make_dir_as(int dir, const std::string& name, const NewObject& wanted);
Status make_node_as(int dir, const std::string& name, const NewObject& wanted);
// Of `wanted` the maker alone counts.
Status make_symlink_as(const std::string& target, int dir, const std::string& name,
                       const NewObject& wanted);

// Changes the owner, as chown(2), of any descriptor. False where we may not: a service account that is
// not root, or an id that our user namespace has not; the object stays what it was.
Result<bool> give_away(int fd, uid_t uid, gid_t gid);

inline constexpr const char* kAccessAcl = "system.posix_acl_access";
inline constexpr const char* kCapability = "security.capability";
inline constexpr const char* kDefaultAcl = "system.posix_acl_default";

}  // namespace cacheshim
