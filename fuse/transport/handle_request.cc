// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/handle_request.h"

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <spdlog/spdlog.h>

#include <cerrno>

#include "fuse/transport/request_view.h"
#include "fuse/transport/wire.h"

namespace cacheshim {

void handle_request(fuse_session* session, RequestView request) {
  request.translate();
  wire::begin_request(request.bytes());
  if (!request.is_well_formed()) {
    spdlog::error("a request of {} bytes is malformed; it is refused", request.size());
    if (request.expects_reply()) wire::refuse(EIO);
    return;
  }
  fuse_buf bytes{};
  bytes.mem = request.bytes();
  bytes.size = request.size();
  fuse_session_process_buf(session, &bytes);
}

}  // namespace cacheshim
