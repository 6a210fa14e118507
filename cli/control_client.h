// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"
#include "store/profiles/profile.h"

namespace cacheshim::cli {

// Communicates with the daemon of a mount through its control directory (docs/control.md).
class ControlClient {
 public:
  // Called for every progress line; may throw to cancel.
  using OnProgress =
      std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)>;

  // Throws Failure (unavailable) if no daemon answers at `mount`.
  explicit ControlClient(const std::string& mount);

  // Sends one request and returns its answer. Throws Failure with the daemon's own text and exit code if it rejects the
  // request, and Failure (unavailable) if the daemon exits before it answers.
  nlohmann::json request(const nlohmann::json& request, const OnProgress& on_progress) const;
  // Like the other request(), but shows progress on stderr.
  nlohmann::json request(const nlohmann::json& request) const;

  // Returns the answer as the daemon wrote it: one line, unparsed. For long answers that the caller
  // only passes on.
  std::string request_text(const nlohmann::json& request) const;

  // Returns the text of a file of the control directory, such as "stats".
  std::string read(const std::string& name) const;

  // Returns the profiles that the daemon loaded before it mounted.
  std::vector<Profile> profiles() const;

  const std::string& mount() const { return mount_; }

 private:
  // Sends the request and calls take(line) for each line of the reply, until take() returns true
  // because the line is the answer.
  void exchange(const nlohmann::json& request,
                const std::function<bool(std::string_view line)>& take) const;

  std::string mount_;
  UniqueFd directory_;
};

// Returns the id of the job that has started, from the answer to a request `job-start`. If the job `named` is not the
// caller's, returns another id and prints a line with the reason.
std::string started_job(const nlohmann::json& answer, const std::string& named);

}  // namespace cacheshim::cli
