// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "common/unique_fd.h"
#include "fuse/daemon.h"
#include "fuse/transport/receive_loop.h"
#include "fuse/transport/request_handler.h"
#include "fuse/transport/ring_loop.h"

struct fuse_session;

namespace cacheshim {

// A mounted FUSE connection: mount(2) by ourselves, so that errors can be told apart and a later
// supervisor can keep the descriptor, and a receive loop of our own.
class Session {
 public:
  // Opens /dev/fuse and mounts it. From here on the mount is there; it is served once run() is
  // called. Detached again by the destructor where the kernel has not ended it.
  static std::variant<std::unique_ptr<Session>, DaemonError> mount(const DaemonOptions& options,
                                                                   const RequestHandler& handler);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int device() const { return fd_; }  // of the connection
  // Starts to receive requests: by rings if `use_rings` and where there are any, else from /dev/fuse.
  // `on_end` is called when the kernel has unmounted.
  void start(unsigned threads, bool use_rings, const std::function<void()>& on_end);
  // Takes the mount out of the daemon's mount namespace, if it is there still. Requests go on to be
  // answered: a client may have something of it open, or have it in a namespace of its own.
  void detach();
  // Detaches the mount and ends the receivers; what clients still have open gives ENOTCONN when the
  // session is gone.
  void stop();

 private:
  Session() = default;

  std::string mount_point_;
  fuse_session* session_ = nullptr;
  int fd_ = -1;  // the session's, once it is mounted
  bool detached_ = false;
  std::unique_ptr<RingLoop> rings_;
  std::unique_ptr<ReceiveLoop> loop_;
};

}  // namespace cacheshim
