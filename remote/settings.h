// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cacheshim::remote {

// The section [remote] of the configuration (cacheshim.toml(5)).
struct Settings {
  std::vector<std::string>
      urls;               // one or two, the nearer engine first; empty: there is no remote tier
  std::string secrets;    // a file with credentials for the engines; "": none
  std::string sign_with;  // a file with the secret key that signs entries; "": nothing is pushed
  std::vector<std::string>
      signers;  // the public keys whose entries are accepted, or files with such keys
  std::uint64_t generation = 0;  // entries of other generations are ignored
  std::chrono::milliseconds timeout{10'000};  // for each request to the engine
  // How long a process that misses an entry waits for the engine's answer. If no answer comes in this time, the daemon
  // stops using the engine until the engine answers again.
  std::chrono::milliseconds wait{250};
  std::uint64_t most_bytes = std::uint64_t{256}
                             << 20;  // larger entries are neither pushed nor fetched
  // The user and group of the process that speaks to the engine, if the caller is root.
  uid_t uid = 65534;
  gid_t gid = 65534;
};

}  // namespace cacheshim::remote
