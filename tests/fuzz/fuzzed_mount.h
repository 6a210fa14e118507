// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fuse/control/control_directory.h"
#include "fuse/mount.h"
#include "fuse/transport/request_source.h"
#include "fuse/vfs/filesystem.h"
#include "store/base/store.h"
#include "tests/unit/support/scratch.h"

struct fuse_session;

namespace cacheshim::fuzz {

// Restricts this process: drops the capabilities that a fuzzer must not use, such as CAP_MKNOD, and limits files to
// 16 MiB. Also sets the umask to 0, and turns off the log. Call once.
void confine();

// A mount over a temporary store, without a kernel and without receivers: deliver() handles a request on the calling
// thread, and the replies go to a sink. Each input gets a new mount, so that a finding depends on one input alone.
class FuzzedMount {
 public:
  FuzzedMount();
  ~FuzzedMount();  // ends the mount as serve_mount() does
  FuzzedMount(const FuzzedMount&) = delete;
  FuzzedMount& operator=(const FuzzedMount&) = delete;

  // Handles the bytes as one message of the kernel, or drops them if they are shorter than a header. Gives each request
  // except FUSE_INTERRUPT a new number.
  void deliver(std::string message);

  // Fails waiting requests and finishes queued tasks.
  void finish();

  Mount& mount() { return mount_; }
  ControlDirectory& control() { return control_; }

 private:
  Scratch scratch_;
  const std::vector<Profile> profiles_;
  const Store store_;
  Mount mount_;
  ControlDirectory control_{mount_};
  Filesystem filesystem_{mount_, control_};
  RequestSources sources_;
  fuse_session* session_ = nullptr;
  std::uint64_t last_ = 0;  // the number of the last request
};

}  // namespace cacheshim::fuzz
