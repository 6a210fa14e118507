// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "remote/helper_process.h"
#include "remote/settings.h"
#include "remote/wire.h"

namespace cacheshim::remote {

// Starts the helper with the settings' URLs and secrets. `program`: the path of cacheshim-remote. Errors: those of
// HelperProcess::start(); kRefused if the file with the secrets cannot be read or parsed, or if exposure_of_secret()
// returns a reason.
std::variant<HelperProcess, RemoteError> start_helper(const Settings& settings,
                                                      const std::string& program);

template <class T>
using Outcome = std::variant<T, RemoteError>;

// Sends requests to a helper, one at a time, for commands. Not thread-safe. Every call blocks until the helper replies.
class Client {
 public:
  explicit Client(HelperProcess helper) : helper_(std::move(helper)) {}

  Outcome<std::optional<std::string>> get(const std::string& key, std::size_t most_bytes);
  Outcome<bool> put_if_absent(const std::string& key, std::string_view object);  // true: stored
  Outcome<bool> remove(const std::string& key);  // true: the key existed
  struct Keys {
    std::vector<std::string> keys;
    std::string position;
    bool is_last = true;
  };
  Outcome<Keys> keys_since(const std::string& position, std::size_t most);

 private:
  Outcome<Message> call(nlohmann::json request, int file = -1);

  HelperProcess helper_;
};

}  // namespace cacheshim::remote
