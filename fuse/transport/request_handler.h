// SPDX-License-Identifier: Apache-2.0
#pragma once

struct fuse_lowlevel_ops;

namespace cacheshim {

// The receiver of a session's requests: the table by which libfuse dispatches, and the userdata of
// each request. Both outlive the session.
struct RequestHandler {
  const fuse_lowlevel_ops& operations;
  void* userdata;
};

}  // namespace cacheshim
