// SPDX-License-Identifier: Apache-2.0
#include "shim/start/start_plan.h"

#include "common/names.h"
#include "common/text_scan.h"
#include "shim/routing/path_match.h"

namespace cacheshim {
namespace {

// Returns `path` or, if it begins with ~, a copy in `out` with HOME in place of the ~. Returns an empty text if HOME is
// not an absolute path, or if the copy does not fit.
std::string_view expand_home(std::string_view path, const Environment& environment,
                             PathBuffer& out) {
  if (path.empty() || *path.data() != '~') return path;
  std::string_view home = environment.find("HOME");
  if (home.empty()) home = environment.find(kHomeVariable);
  const std::string_view rest(path.data() + 1, path.size() - 1);
  if (home.empty() || *home.data() != '/') return {};
  return {out.text, join_path(out, {home, rest})};
}

bool any_is_set(const Environment& environment, std::string_view names) {
  while (!names.empty()) {
    if (!environment.find(take_until(names, ':')).empty()) return true;
  }
  return false;
}

enum class Family {
  kLeftAlone,  // the user has chosen another place
  kUnset,      // the library may set the family's variable
  kInMount,    // its variable already leads to the mount
};

Family family_of(const Environment& environment, const RouteTable& table, std::uint32_t route,
                 std::string_view mount) {
  const std::string_view variable = table.variable(route);
  const std::string_view value = variable.empty() ? variable : environment.find(variable);
  if (!value.empty()) {
    const bool is_absolute = *value.data() == '/';
    return is_absolute && match_prefix(value, mount).matched ? Family::kInMount
                                                             : Family::kLeftAlone;
  }
  return any_is_set(environment, table.unless(route)) ? Family::kLeftAlone : Family::kUnset;
}

// Whether `value`, the value of a family's variable, is another path to `directory`.
bool is_other_spelling(std::string_view value, Family family, std::string_view directory,
                       StartActions& actions) {
  PathBuffer plain;
  const std::size_t length = normalise_path(value, plain.text, sizeof plain.text);
  if (length == 0) return actions.leads_to(value.data(), directory.data());
  if (std::string_view(plain.text, length) == directory) return value != directory;
  return family == Family::kLeftAlone && actions.leads_to(plain.text, directory.data());
}

bool is_route_name(std::string_view name) { return is_job_id(name) && *name.data() != '.'; }

bool add_own_route(std::string_view item, const Environment& environment, Routes& routes) {
  std::size_t equals = item.size();
  while (equals > 0 && item.data()[equals - 1] != '=') --equals;
  if (equals == 0) return false;
  const std::string_view name(item.data() + equals, item.size() - equals);
  PathBuffer home;
  const std::string_view path = expand_home({item.data(), equals - 1}, environment, home);
  return is_route_name(name) && routes.add(name, path, true);
}

}  // namespace

JobId job_of_process(const Environment& environment, std::string_view cgroup_text) {
  const JobId job = job_from_environment(environment);
  if (!environment.find(kJobVariable).empty()) return job;
  if (environment.find("SLURM_JOB_ID").empty()) return job;
  const JobId proved = slurm_job_from_cgroup(cgroup_text);
  return proved.empty() || proved.view() == job.view() ? job : JobId();
}

void plan_profiles(const Environment& environment, const RouteTable& table, Routes& routes,
                   StartActions& actions) {
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    const std::string_view variable = table.variable(i);
    const std::string_view given = variable.empty() ? variable : environment.find(variable);
    Family family = family_of(environment, table, i, routes.mount());
    const bool may_set = !given.empty() || (family == Family::kUnset && !variable.empty());
    const char* const directory = may_set ? routes.path_of_name(table.name(i)) : nullptr;
    if (!given.empty() && directory != nullptr &&
        is_other_spelling(given, family, directory, actions)) {
      family = Family::kUnset;
    }
    PathBuffer home;
    const std::string_view path = expand_home(table.default_path(i), environment, home);
    // Adds the route of a family that is left alone, too: after the mount is gone, a path of the mount falls back to
    // the family's default path.
    (void)routes.add(table.name(i), path, family != Family::kLeftAlone);
    if (family == Family::kUnset && directory != nullptr)
      actions.set_variable(variable.data(), directory);
  }
}

void plan_own_routes(const Environment& environment, Routes& routes, StartActions& actions) {
  std::string_view rest = environment.find(kRoutesVariable);
  while (!rest.empty()) {
    const std::string_view item = take_until(rest, ':');
    if (item.empty() || add_own_route(item, environment, routes)) continue;
    actions.refuse_route(item);
  }
}

}  // namespace cacheshim
