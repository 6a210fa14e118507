// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "cli/configuration/config.h"
#include "cli/doctor/doctor.h"
#include "cli/failure.h"
#include "cli/paths.h"
#include "remote/client.h"
#include "remote/entry_exchange.h"

namespace cacheshim::cli {
namespace {

constexpr const char* kCheck = "remote tier";

std::optional<remote::Settings> find_settings(const std::string& config) {
  try {
    remote::Settings settings = load_config(config).remote;
    if (!settings.urls.empty()) return settings;
  } catch (const Failure&) {  // check_installation() reports it
  }
  return std::nullopt;
}

void check_keys(const remote::Settings& settings, Findings& findings) {
  const auto loaded = remote::load_keys(settings);
  if (const auto* const error = std::get_if<remote::RemoteError>(&loaded)) {
    return findings.problem(kCheck, "keys", error->text,
                            "mounts do not use the remote tier until this is corrected");
  }
  const auto& keys = std::get<remote::ExchangeKeys>(loaded);
  if (keys.allowed.empty()) {
    return findings.warn(kCheck, "keys", "no entry is accepted, because no signer is allowed",
                         "set signers in [remote]");
  }
  findings.ok(kCheck, "keys",
              fmt::format("{} of signers; entries are {}pushed", keys.allowed.size(),
                          keys.signing ? "" : "not "));
}

void check_engine(const remote::Settings& settings, Findings& findings) {
  const std::string where = fmt::format("{}", fmt::join(settings.urls, ", "));
  constexpr const char* kAdvice = "without it, each machine has only its own entries";
  auto started = remote::start_helper(settings, find_installation().remote_helper);
  if (const auto* const error = std::get_if<remote::RemoteError>(&started)) {
    return findings.problem(kCheck, where, error->text, kAdvice);
  }
  remote::Client client(std::get<remote::HelperProcess>(std::move(started)));
  const auto page = client.keys_since("", 1);
  if (const auto* const error = std::get_if<remote::RemoteError>(&page)) {
    return findings.problem(kCheck, where, error->text, kAdvice);
  }
  findings.ok(kCheck, where, "the engine answers");
}

// Whether this user can read the key and the secrets. If root starts the daemon, usually only root can.
bool may_check(const remote::Settings& settings) {
  for (const std::string& file : {settings.sign_with, settings.secrets}) {
    if (!file.empty() && ::access(file.c_str(), R_OK) != 0 && errno == EACCES) return false;
  }
  return true;
}

}  // namespace

void check_remote(const DoctorContext& context, Findings& findings) {
  const auto settings = find_settings(context.config);
  if (!settings) return;
  if (!may_check(*settings)) {
    return findings.warn(kCheck, "keys", "this user may not read them",
                         "run as root to check the remote tier");
  }
  check_keys(*settings, findings);
  check_engine(*settings, findings);
}

}  // namespace cacheshim::cli
