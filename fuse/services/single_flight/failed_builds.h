// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <unordered_map>

namespace cacheshim {

// Names whose builds have failed. Each name is kept for a limited time, during which no process waits for it. Not
// thread-safe.
class FailedBuilds {
 public:
  using Time = std::chrono::steady_clock::time_point;

  bool empty() const { return until_.empty(); }
  void add(const std::string& path, Time until);
  bool has(const std::string& path, Time now);
  // Forgets `path` and the names below it.
  void forget(std::string_view path);

 private:
  std::unordered_map<std::string, Time> until_;
};

}  // namespace cacheshim
