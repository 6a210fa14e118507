// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cacheshim {

// Whether only this machine can change the file system of the descriptor `fd`, judged by its type (statfs(2)). Returns
// false for types that the list does not name, and for FUSE, which may be sshfs, GlusterFS or virtiofs. Thread-safe.
bool is_local_file_system(int fd);

}  // namespace cacheshim
