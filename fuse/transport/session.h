// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "common/unique_fd.h"
#include "fuse/daemon.h"
#include "fuse/transport/connection_abort.h"
#include "fuse/transport/make_sources.h"
#include "fuse/transport/request_handler.h"

struct fuse_session;

namespace cacheshim {

// A mounted FUSE connection. Calls mount(2) directly, not through libfuse, so that errors can be
// distinguished. Receives requests through its own sources.
class Session {
 public:
  // Opens /dev/fuse and mounts the file system. From then on, the mount exists; requests are answered only after
  // start(). The destructor detaches the mount if it still exists. Call on the main thread (ConnectionGuard).
  static std::variant<std::unique_ptr<Session>, DaemonError> mount(const DaemonOptions& options,
                                                                   const RequestHandler& handler);
  // Serves a connection that exists already, and mounts nothing. `device` is /dev/fuse, or a socket
  // whose other end plays the kernel.
  static std::variant<std::unique_ptr<Session>, DaemonError> connect(UniqueFd device,
                                                                     const RequestHandler& handler);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int device() const { return fd_; }  // the descriptor of /dev/fuse
  // Starts to receive requests. Call once.
  void start(const SourceOptions& options);
  // Removes the mount from the daemon's mount namespace, if it is still there. Requests are still
  // answered: a client may have files of the mount open, or the mount may exist in another
  // namespace.
  void detach();
  // Detaches the mount and stops the sources. Once the session is destroyed, calls on files that
  // clients still have open fail with ENOTCONN.
  void stop();
  // Call after stop(), if a thread is blocked in a write to device(): ends the connection (connection_abort.h).
  void abort() const;

 private:
  Session() = default;

  std::string mount_point_;
  fuse_session* session_ = nullptr;
  int fd_ = -1;           // the session's descriptor
  bool detached_ = true;  // the session has no mount
  UniqueFd abort_;  // from open_abort(); empty without the privilege
  std::optional<ConnectionGuard> guard_;
  RequestSources sources_;
};

}  // namespace cacheshim
