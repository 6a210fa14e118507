// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <unordered_map>

namespace cacheshim {

// Names whose builds have failed, each for some time: nobody waits for them meanwhile. Not thread-safe.
class FailedBuilds {
 public:
  using Time = std::chrono::steady_clock::time_point;

  bool empty() const { return until_.empty(); }
  void add(const std::string& path, Time until);
  bool has(const std::string& path, Time now);
  // Forgets `path`, and all that is below it.
  void forget(std::string_view path);

 private:
  std::unordered_map<std::string, Time> until_;
};

}  // namespace cacheshim
