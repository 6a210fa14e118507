// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cacheshim {

// One line of /proc/PID/mountinfo.
struct MountEntry {
  std::uint64_t id = 0;
  std::string device;         // "major:minor", decimal
  std::string path;           // with the kernel's escapes decoded
  std::string type;           // "fuse.cacheshim" for cacheshim's mounts
  std::string options;        // the options of this mount: "rw,nosuid,nodev"
  std::string super_options;  // the options of the file system: "rw,user_id=0,…"
};

std::vector<MountEntry> parse_mount_info(std::string_view text);

// Returns the user who has mounted a FUSE mount: the uid in the mount's option user_id. Returns
// nothing for other mounts.
std::optional<uid_t> owner_of(const MountEntry& mount);

// Returns the mount at `path` itself. If there are several, returns the last one, which covers the
// others; nothing if there is none. Does not check whether a mount on a directory above `path` hides it.
std::optional<MountEntry> find_mount(const std::vector<MountEntry>& mounts, std::string_view path);

// Returns the mounts that this process sees now; none if it cannot read /proc/self/mountinfo.
std::vector<MountEntry> read_mounts();

// Whether the daemon of a FUSE mount is dead. Blocks if the daemon is alive but does not answer.
bool is_dead_mount(const std::string& path);

}  // namespace cacheshim
