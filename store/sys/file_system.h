// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// Whether `fd` is on a file system that only this machine can change, according to the type that fstatfs(2) reports.
// Returns false for unknown types, and for FUSE, which may be sshfs, GlusterFS or virtiofs. Thread-safe.
bool is_local_file_system(int fd);

}  // namespace cacheshim
