// SPDX-License-Identifier: Apache-2.0
#pragma once

struct fuse_session;

namespace cacheshim {

class RequestView;

// Passes a request to libfuse, which dispatches it. A malformed request gets EIO instead, or no reply
// if the kernel expects none. The request's bytes must stay valid until this function returns. The
// function may change them (RequestView::translate).
void handle_request(fuse_session* session, RequestView request);

}  // namespace cacheshim
