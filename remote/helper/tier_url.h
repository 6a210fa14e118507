// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "remote/engines/remote_tier.h"

namespace cacheshim::remote {

// Creates the engine that the URL names. For two URLs, the nearer engine first, creates a StackedTier of both. Does not
// connect yet.
//
//   redis://HOST[:PORT][/DATABASE][?prefix=P]      redis+unix:///SOCKET[?prefix=P&database=N]
//   s3://BUCKET[/PREFIX][?endpoint=URL&region=R]
//   file:///DIRECTORY
//
// `secrets` may have `user` and `password` (Redis), and `access_key`, `secret_key` and `session_token` (S3). A URL with
// a password is an error, because the URL is shown to users. Throws std::invalid_argument with one line that names the
// URL.
std::unique_ptr<RemoteTier> make_tier(const std::vector<std::string>& urls,
                                      const nlohmann::json& secrets,
                                      std::chrono::milliseconds timeout);

}  // namespace cacheshim::remote
