// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The messages between the daemon and its helper `cacheshim-metrics`. They go through a socket pair of type
// SOCK_SEQPACKET. A request is a serial number (native byte order). The reply is the same number, followed by the
// metrics in Prometheus's text format, at most kMostTextBytes; no text if they are longer. The helper has only one
// unanswered request at a time, except if it has given up waiting for the reply. Once the helper listens, it sends the
// number kReady, which has no reply.
namespace cacheshim::metrics {

using Serial = std::uint64_t;

inline constexpr Serial kReady = 0;

inline constexpr std::size_t kMostTextBytes = std::size_t{128} << 10;

// The helper's descriptors.
inline constexpr int kDaemonSocket = 3;
inline constexpr int kListeningSocket = 4;

}  // namespace cacheshim::metrics
