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

// Talks to the daemon of a mount through its control directory (docs/control.md).
class ControlClient {
 public:
  // Called for every progress line; may throw to give up.
  using OnProgress =
      std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)>;

  // Throws Failure (unavailable) where no daemon answers at `mount`.
  explicit ControlClient(const std::string& mount);

  // Sends one request and reads to its answer. Throws Failure with the daemon's own text and exit
  // code where it refuses, and Failure (unavailable) where it ends meanwhile.
  nlohmann::json request(const nlohmann::json& request, const OnProgress& on_progress) const;
  // The same, with progress on stderr.
  nlohmann::json request(const nlohmann::json& request) const;

  // The answer as the daemon wrote it, one line, not parsed: for long answers that are only passed
  // on.
  std::string request_text(const nlohmann::json& request) const;

  // The text of a file of the control directory, as "stats".
  std::string read(const std::string& name) const;

  // The profiles that the daemon uses, as it found them when it mounted.
  std::vector<Profile> profiles() const;

  const std::string& mount() const { return mount_; }

 private:
  // Calls `take` with each line until `take` says that the line was the answer.
  void exchange(const nlohmann::json& request,
                const std::function<bool(std::string_view line)>& take) const;

  std::string mount_;
  UniqueFd folder_;
};

}  // namespace cacheshim::cli
