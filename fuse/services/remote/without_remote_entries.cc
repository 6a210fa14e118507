// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/remote/make_remote_entries.h"

namespace cacheshim {

// For builds without the Meson option `remote`.
std::unique_ptr<RemoteEntries> make_remote_entries(EventLoop&, const remote::Settings&,
                                                   const std::string&, const RemoteParts&) {
  return nullptr;
}

}  // namespace cacheshim
