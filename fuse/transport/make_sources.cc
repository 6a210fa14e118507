// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/make_sources.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "fuse/transport/receive_loop.h"
#include "fuse/transport/ring_loop.h"

namespace cacheshim {

RequestSources make_sources(fuse_session* session, const std::string& mount_point,
                            const SourceOptions& options) {
  RequestSources sources;
  std::string why_not = "the configuration says so";
  if (options.use_rings) {
    auto rings = RingLoop::make(session, mount_point, options.threads, why_not);
    if (rings) sources.push_back(std::move(rings));
  }
  if (sources.empty()) {
    spdlog::info("requests come over /dev/fuse, not over io_uring: {}", why_not);
  }
  sources.push_back(std::make_unique<ReceiveLoop>(session, options.threads, options.on_end));
  return sources;
}

}  // namespace cacheshim
