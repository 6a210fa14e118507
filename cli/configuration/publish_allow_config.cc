// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/publish_allow_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <pwd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cacheshim::cli {
namespace {

// -1 is not a valid id: chown(2) interprets it as "do not change".
constexpr std::int64_t kMostId = 0xfffffffe;

std::optional<unsigned> user_id(const std::string& name) {
  const passwd* const user = ::getpwnam(name.c_str());
  return user != nullptr ? std::optional<unsigned>(user->pw_uid) : std::nullopt;
}

std::optional<unsigned> group_id(const std::string& name) {
  const group* const found = ::getgrnam(name.c_str());
  return found != nullptr ? std::optional<unsigned>(found->gr_gid) : std::nullopt;
}

using FindId = std::optional<unsigned> (*)(const std::string& name);

// Reads an array of names and ids. Adds their original text to `texts`.
std::set<unsigned> read_ids(TomlReader& allow, std::string_view key, std::string_view what,
                            FindId find_id, std::vector<std::string>& texts) {
  std::set<unsigned> ids;
  const toml::node* const node = allow.find_node(key);
  if (node == nullptr) return ids;
  const toml::array* const array = node->as_array();
  const std::string rule = fmt::format("must be an array of {}s: names or ids", what);
  if (array == nullptr) allow.report(key, rule);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const toml::node& one = *array->get(i);
    if (const auto name = one.value_exact<std::string>()) {
      const auto id = find_id(*name);
      if (!id) allow.report(key, fmt::format("this machine knows no {} '{}'", what, *name));
      ids.insert(id.value_or(0));
      texts.push_back(*name);
    } else if (const auto id = one.value_exact<std::int64_t>(); id && *id >= 0 && *id <= kMostId) {
      ids.insert(static_cast<unsigned>(*id));
      texts.push_back(fmt::to_string(*id));
    } else {
      allow.report(key, rule);
    }
  }
  return ids;
}

std::vector<std::string> read_jobs(TomlReader& allow) {
  auto jobs = allow.find_strings("jobs").value_or(std::vector<std::string>());
  for (const std::string& job : jobs) {
    if (!job.empty() && job.find_first_not_of("0123456789*?[]-") == job.npos) continue;
    allow.report("jobs",
                 fmt::format("'{}' is no pattern of SLURM's job ids, which are numbers: only "
                             "those are proved by a cgroup",
                             job));
  }
  return jobs;
}

}  // namespace

std::optional<PublishAllow> read_publish_allow(TomlReader& publish, TomlProblem& problem) {
  const toml::table* const table = publish.find_table("allow");
  if (table == nullptr) return std::nullopt;
  TomlReader allow(*table, "publish.allow", problem);
  std::vector<std::string> users;
  std::vector<std::string> groups;
  PublishAllow read;
  read.users = read_ids(allow, "users", "user", user_id, users);
  read.groups = read_ids(allow, "groups", "group", group_id, groups);
  read.jobs = read_jobs(allow);
  allow.finish();
  std::vector<std::string> parts;
  if (!users.empty()) parts.push_back(fmt::format("users {}", fmt::join(users, ", ")));
  if (!groups.empty()) parts.push_back(fmt::format("groups {}", fmt::join(groups, ", ")));
  if (!read.jobs.empty()) {
    parts.push_back(fmt::format("jobs in cgroups {}", fmt::join(read.jobs, ", ")));
  }
  read.text = fmt::format("{}", fmt::join(parts, "; "));
  return read;
}

}  // namespace cacheshim::cli
