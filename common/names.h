// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

// Names that users, scripts, the daemon and the preloaded library share.
namespace cacheshim {

inline constexpr std::string_view kDefaultMountPoint = "/ci-cache";
inline constexpr std::string_view kJobsName = ".jobs";
// The name of cacheshim's own directory, both in the mount and in the store.
inline constexpr std::string_view kControlName = ".cacheshim";
inline constexpr std::string_view kFilesystemType = "fuse.cacheshim";

// The run directory of a mount is /run/cacheshim/<escaped mount path>; for a daemon that does not
// run as root, $XDG_RUNTIME_DIR/cacheshim/<escaped mount path>.
inline constexpr std::string_view kRunBase = "/run";
inline constexpr std::string_view kRunDirName = "cacheshim";
inline constexpr std::string_view kRoutesFile = "routes";
// A running daemon holds an flock(2) lock on this file.
inline constexpr std::string_view kRunLockFile = "lock";

inline constexpr std::string_view kMountVariable = "CACHESHIM_MOUNT";
inline constexpr std::string_view kJobVariable = "CACHESHIM_JOB";
inline constexpr std::string_view kCycleVariable = "CACHESHIM_CYCLE";
inline constexpr std::string_view kRoutesVariable = "CACHESHIM_ROUTES";
inline constexpr std::string_view kPublishVariable = "CACHESHIM_PUBLISH";
inline constexpr std::string_view kDisableVariable = "CACHESHIM_DISABLE";
inline constexpr std::string_view kStrictVariable = "CACHESHIM_STRICT";
// If HOME is unset or empty, the library uses the value of this variable for the ~ in default paths. When the library
// restores LD_PRELOAD in a child's environment, it also adds this variable, with the value of HOME.
inline constexpr std::string_view kHomeVariable = "CACHESHIM_HOME";
inline constexpr std::string_view kLogVariable = "CACHESHIM_LOG";

// Writes the run directory's name for a mount path into `out`, without a final NUL. Returns the
// name's length, or 0 if the name does not fit. Resembles systemd-escape --path: drops '/' at the
// beginning and the end, replaces each other '/' with '-', and replaces '-', '\', bytes below 0x21 and
// a '.' at the beginning with \xNN. The name of "/" is "-". Requires: `path` has no "//".
std::size_t escape_mount_path(std::string_view path, char* out, std::size_t capacity);

}  // namespace cacheshim
