// SPDX-License-Identifier: Apache-2.0
#pragma once

struct fuse_session;

namespace cacheshim {

class RequestView;

// Passes a request to libfuse, which dispatches it. A malformed request gets EIO instead, or no
// reply if the kernel expects none. The bytes must stay until it returns.
void handle_request(fuse_session* session, const RequestView& request);

}  // namespace cacheshim
