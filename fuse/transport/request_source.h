// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace cacheshim {

// Receives requests from the kernel, over /dev/fuse (ReceiveLoop) or over io_uring (RingLoop). A source has its own
// threads, passes each request to handle_request(), and sends the replies to its requests. Session starts and stops the
// sources, and wire::send() passes the replies to them. Neither depends on which sources exist.
class RequestSource {
 public:
  RequestSource() = default;
  RequestSource(const RequestSource&) = delete;
  RequestSource& operator=(const RequestSource&) = delete;
  virtual ~RequestSource() = default;  // stops the source; call after the last reply

  // Returns the flags of FUSE_INIT (fuse_init_in::flags2) on which kernel and daemon must agree
  // before the kernel sends requests through this source. 0: none.
  virtual std::uint32_t init_flags2() const { return 0; }
  // Starts to receive requests. Call once: after the reply to FUSE_INIT if init_flags2() is not 0,
  // and before FUSE_INIT otherwise. Do not call it if kernel and daemon do not agree on these
  // flags.
  virtual void start() = 0;
  // Stops receiving requests. Blocks until the requests in progress have been handled. Replies can
  // still be sent afterwards. Idempotent. Do not call it on a thread that handles a request.
  virtual void stop() = 0;
  // Sends a reply or a notification. Returns std::nullopt if another source must send it; otherwise returns as
  // writev(2) does, and sets errno. Thread-safe.
  virtual std::optional<ssize_t> reply(const iovec* parts, int count) = 0;
  // Returns a buffer of `size` bytes for the reply, without its header, to the request that the calling thread is
  // handling. reply() does not copy a reply that was written there. Returns nullptr if the source has no buffer of this
  // size, or if the request came through another source.
  virtual char* reply_space(std::size_t /*size*/) { return nullptr; }
};

// The sources of a session, in the order in which replies are offered to them. The last one accepts
// every reply and every notification.
using RequestSources = std::vector<std::unique_ptr<RequestSource>>;

}  // namespace cacheshim
