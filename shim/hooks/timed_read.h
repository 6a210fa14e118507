// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "common/result.h"

namespace cacheshim {

// Reads a file of the mount that has fewer than `capacity` bytes; returns their number. Gives up after `timeout_ms`. A
// child process reads the file, because no signal except SIGKILL ends a read from a daemon that hangs, and even SIGKILL
// does not always end it. The child sends no SIGCHLD and, since Linux 5.9, holds none of the process's descriptors.
// Takes about 200 µs in a small process, so use it only at process start. Errors: as read_file(); ETIMEDOUT; EPIPE if
// the child is killed; also as pipe2(2) and clone(2).
Result<std::size_t> read_file_in_time(const char* path, char* out, std::size_t capacity,
                                      int timeout_ms);

}  // namespace cacheshim
