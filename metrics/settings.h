// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cacheshim::metrics {

// Where a mount serves its metrics to Prometheus.
struct Settings {
  std::string address{};  // a numeric IPv4 or IPv6 address; "": the mount serves no metrics
  std::uint16_t port = 0;

  explicit operator bool() const { return !address.empty(); }
};

}  // namespace cacheshim::metrics
