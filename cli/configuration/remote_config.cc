// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/remote_config.h"

#include <fmt/format.h>
#include <pwd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cacheshim_build.h"
#include "cli/configuration/toml_units.h"
#include "store/sys/toml_reader.h"

namespace cacheshim::cli {
namespace {

constexpr std::int64_t kMostTimeMs = 60'000;
constexpr std::uint64_t kMostObjectBytes = std::uint64_t{4} << 30;
constexpr std::size_t kMostUrls = 2;

// Reads a text or an array of texts.
std::vector<std::string> find_texts(TomlReader& remote, std::string_view key) {
  const toml::node* const node = remote.find_node(key);
  if (node == nullptr) return {};
  if (const auto text = node->value_exact<std::string>()) return {*text};
  return remote.find_strings(key).value_or(std::vector<std::string>());
}

std::string find_path(TomlReader& remote, std::string_view key) {
  std::string path = remote.find_string(key).value_or("");
  if (!path.empty() && path.front() != '/') remote.report(key, "must be an absolute path");
  return path;
}

void read_user(TomlReader& remote, remote::Settings& settings) {
  const std::string name = remote.find_string("user").value_or("nobody");
  const passwd* const user = ::getpwnam(name.c_str());
  if (user == nullptr)
    return remote.report("user", fmt::format("this machine knows no user '{}'", name));
  if (user->pw_uid == 0) return remote.report("user", "must not be root");
  settings.uid = user->pw_uid;
  settings.gid = user->pw_gid;
}

void find_time(TomlReader& remote, std::string_view key, std::chrono::milliseconds& time) {
  const auto read = remote.find_integer(key);
  if (!read) return;
  if (*read < 1 || *read > kMostTimeMs) {
    remote.report(key, fmt::format("must be from 1 to {}", kMostTimeMs));
  }
  time = std::chrono::milliseconds(*read);
}

void read_limits(TomlReader& remote, remote::Settings& settings) {
  find_time(remote, "timeout_ms", settings.timeout);
  find_time(remote, "wait_ms", settings.wait);
  if (const auto generation = remote.find_integer("generation")) {
    if (*generation < 0) remote.report("generation", "must not be negative");
    settings.generation = static_cast<std::uint64_t>(*generation);
  }
  settings.most_bytes = find_size(remote, "max_entry").value_or(settings.most_bytes);
  if (settings.most_bytes > kMostObjectBytes) remote.report("max_entry", "must be at most 4G");
}

}  // namespace

remote::Settings read_remote(TomlReader& root, TomlProblem& problem) {
  remote::Settings settings;
  const toml::table* const table = root.find_table("remote");
  if (table == nullptr) return settings;
  if (!CACHESHIM_HAS_REMOTE) root.report("remote", "this build has no remote tier");
  TomlReader remote(*table, "remote", problem);
  settings.urls = find_texts(remote, "url");
  if (settings.urls.empty() || settings.urls.size() > kMostUrls) {
    remote.report("url", "must be a URL or an array of two URLs, the nearer one first");
  }
  settings.secrets = find_path(remote, "secrets");
  settings.sign_with = find_path(remote, "sign_with");
  settings.signers = find_texts(remote, "signers");
  read_user(remote, settings);
  read_limits(remote, settings);
  remote.finish();
  return settings;
}

}  // namespace cacheshim::cli
