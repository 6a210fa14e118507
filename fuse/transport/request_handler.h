// SPDX-License-Identifier: Apache-2.0
#pragma once

struct fuse_lowlevel_ops;

namespace cacheshim {

// The callbacks to which libfuse dispatches a session's requests, and the userdata that each request carries. Both must
// outlive the session.
struct RequestHandler {
  const fuse_lowlevel_ops& operations;
  void* userdata;
};

}  // namespace cacheshim
