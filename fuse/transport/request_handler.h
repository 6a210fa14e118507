// SPDX-License-Identifier: Apache-2.0
#pragma once

struct fuse_lowlevel_ops;

namespace cacheshim {

// Where libfuse sends a session's requests: the table by which it dispatches them, and the userdata of each request.
// Both must outlive the session.
struct RequestHandler {
  const fuse_lowlevel_ops& operations;
  void* userdata;
};

}  // namespace cacheshim
