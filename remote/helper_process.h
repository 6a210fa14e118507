// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/unique_fd.h"
#include "helper/process.h"

namespace cacheshim::remote {

// Why a request to the engine failed.
struct RemoteError {
  enum class Kind {
    kUnavailable,  // the engine or the helper did not answer; a later request may succeed
    kFull,         // the engine has no room
    kRefused,      // the engine refuses the request: for example, wrong credentials
  };
  Kind kind = Kind::kUnavailable;
  std::string text;  // one line: what, where, why
};

// Returns the error that a reply contains; `text` is "" if it contains none.
RemoteError error_of(const nlohmann::json& reply);

// A running process `cacheshim-remote` (wire.h). The destructor kills it, and blocks up to 2 s until it has exited. Not
// thread-safe.
class HelperProcess {
 public:
  struct Options {
    std::string program;  // the path of cacheshim-remote
    uid_t uid = 0;        // the helper's user and group, if the caller is root
    gid_t gid = 0;
    std::vector<std::string> urls;
    nlohmann::json secrets = nlohmann::json::object();
    std::chrono::milliseconds timeout{0};  // for each request to the engine
  };
  // Starts the process, and blocks up to 5 s until it has accepted the URLs. Does not connect to the engine.
  static std::variant<HelperProcess, RemoteError> start(const Options& options);

  int socket() const { return socket_.get(); }
  bool has_leases() const { return has_leases_; }

 private:
  HelperProcess(helper::Process process, UniqueFd socket)
      : process_(std::move(process)), socket_(std::move(socket)) {}

  helper::Process process_;
  UniqueFd socket_;  // destroyed first: the helper then exits even if this process may not kill it
  bool has_leases_ = false;
};

}  // namespace cacheshim::remote
