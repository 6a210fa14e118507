// SPDX-License-Identifier: Apache-2.0
#pragma once

struct fuse_lowlevel_ops;

namespace cacheshim {

// What a session hands its requests to: the table that libfuse dispatches by, and the userdata of each request.
// Both outlive the session.
struct RequestHandler {
  const fuse_lowlevel_ops& operations;
  void* userdata;
};

}  // namespace cacheshim
