// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "fuse/transport/request_source.h"

struct fuse_session;

namespace cacheshim {

struct SourceOptions {
  unsigned threads;              // the number of receivers: see ReceiveLoop() and RingLoop::make()
  bool use_rings;                // whether to receive requests over io_uring if that is available
  std::function<void()> on_end;  // called after an unmount, or when reading /dev/fuse fails
};

// Makes the sources of a session's requests: /dev/fuse and, if possible, the rings. If there are no rings, logs the
// reason. The session must outlive the sources.
RequestSources make_sources(fuse_session* session, const std::string& mount_point,
                            const SourceOptions& options);

}  // namespace cacheshim
