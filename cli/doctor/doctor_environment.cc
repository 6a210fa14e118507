// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>

#include "cli/cache_path.h"
#include "cli/doctor/doctor.h"
#include "cli/paths.h"
#include "cli/run_environment.h"
#include "common/cuda_defaults.h"
#include "common/job_id.h"
#include "common/names.h"
#include "store/profiles/profile.h"
#include "store/profiles/publish_policy.h"

namespace cacheshim::cli {
namespace {

constexpr const char* kEnvironmentCheck = "environment";
constexpr std::string_view kOurPrefix = "CACHESHIM_";
// All variables that users may set, and those that the library sets for child processes.
constexpr std::array<std::string_view, 16> kKnown = {
    kMountVariable,        kJobVariable,         kCycleVariable,      kRoutesVariable,
    kPublishVariable,      kDisableVariable,     kStrictVariable,     kLogVariable,
    kCudaEagerVariable,    kCudaMatchVariable,   kCudaReportVariable, "CACHESHIM_EXEC",
    "CACHESHIM_DIRECTORY", "CACHESHIM_CUDA_SET", "CACHESHIM_WARNED",  kHomeVariable};

std::string setting(std::string_view name) {
  return fmt::format("{}={}", name, find_variable(name).value_or(""));
}

bool is_below(const std::string& path, const std::string& directory) {
  return !directory.empty() && (path == directory || path.starts_with(directory + "/"));
}

void check_names(Findings& findings) {
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view variable = *at;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (!name.starts_with(kOurPrefix)) continue;
    if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) continue;
    findings.warn(kEnvironmentCheck, name, "is no variable of cacheshim, and has no effect",
                  "'cacheshim --help' names them");
  }
}

void check_ids(Findings& findings) {
  for (const std::string_view name : {kJobVariable, kCycleVariable}) {
    const std::string given = find_variable(name).value_or("");
    const std::string used(JobId::from_text(given).view());
    if (given == used) continue;
    findings.warn(
        kEnvironmentCheck, setting(name),
        fmt::format("is used as '{}': only letters, digits and ._-, at most {}", used, kMaxJobId),
        "choose one that is used unchanged: two ids may become equal");
  }
}

void check_switches(Findings& findings) {
  if (is_switched_on(kDisableVariable)) {
    const bool is_required = is_switched_on(kStrictVariable);
    findings.warn(kEnvironmentCheck, setting(kDisableVariable),
                  is_required ? fmt::format("the library does nothing, although {} requires it",
                                            setting(kStrictVariable))
                              : "the library does nothing in jobs that are started from here",
                  is_required ? "unset one of them" : "unset it");
  }
  for (const std::string_view name : {kDisableVariable, kStrictVariable}) {
    const auto value = find_variable(name);
    if (!value || *value == "1" || *value == "0") continue;
    findings.warn(kEnvironmentCheck, setting(name),
                  "counts as 1: only 0 and an empty value mean off", "set it to 1, or unset it");
  }
  const auto publish = find_variable(kPublishVariable);
  if (publish && !parse_publish_policy(*publish)) {
    findings.warn(kEnvironmentCheck, setting(kPublishVariable),
                  "is none of never, end, complete, and has no effect", "correct it");
  }
  const auto eager = find_variable(kCudaEagerVariable);
  CudaPolicy policy;
  if (eager && !parse_cuda_policy(*eager, policy)) {
    findings.warn(kEnvironmentCheck, setting(kCudaEagerVariable),
                  "is none of off, auto, force, select", "correct it");
  }
}

void check_log(Findings& findings) {
  const auto log = find_variable(kLogVariable);
  if (!log) return;
  const auto slash = log->find_last_of('/');
  const std::string directory =
      slash == log->npos ? "." : log->substr(0, std::max<std::size_t>(slash, 1));
  const bool is_there = ::access(log->c_str(), F_OK) == 0;
  if (::access(is_there ? log->c_str() : directory.c_str(), W_OK) == 0) return;
  findings.warn(kEnvironmentCheck, setting(kLogVariable),
                "cannot be written to: " + std::generic_category().message(errno),
                "name a file that this user may write");
}

// Reads the umask by changing it temporarily. doctor has a single thread, so no file is created with the temporary
// umask.
void check_umask(Findings& findings) {
  const mode_t mask = ::umask(022);
  (void)::umask(mask);
  if ((mask & S_IROTH) == 0) return;
  findings.warn(
      kEnvironmentCheck, fmt::format("umask {:04o}", mask),
      "others may not read what jobs that are started from here build, so a mount of several users does "
      "not publish it",
      "'umask 022' in the job script, or open_files in the section [publish] of the configuration");
}

void check_mount_variable(const DoctorContext& context, Findings& findings) {
  const auto mount = find_variable(kMountVariable);
  if (!mount) {
    if (context.mount.empty() || context.mount == kDefaultMountPoint) return;
    return findings.warn(
        kEnvironmentCheck, kMountVariable,
        fmt::format("is not set: jobs that are started from here look for {}, not for {}",
                    kDefaultMountPoint, context.mount),
        fmt::format("'export {}={}', or use 'cacheshim run --mount'", kMountVariable,
                    context.mount));
  }
  if (context.mount.empty() || !context.is_available || resolve_path(*mount) == context.mount)
    return;
  findings.warn(
      kEnvironmentCheck, setting(kMountVariable),
      fmt::format("jobs that are started from here do not use the mount at '{}'", context.mount),
      "use one of the two everywhere");
}

// Reports each cache variable that names a path outside the mount, because the cache then does not
// use the mount. Does not report a default path of the cache, because the library redirects it.
void check_cache_variables(const DoctorContext& context, const std::vector<Profile>& profiles,
                           Findings& findings) {
  const std::string mount =
      find_variable(kMountVariable)
          .value_or(context.mount.empty() ? std::string(kDefaultMountPoint) : context.mount);
  for (const Profile& profile : profiles) {
    if (profile.variable.empty()) continue;
    const auto value = find_variable(profile.variable);
    if (!value || is_below(*value, mount)) continue;
    const auto is_default = [&](const std::string& path) {
      return is_below(*value, expand_home(path));
    };
    if (std::any_of(profile.default_paths.begin(), profile.default_paths.end(), is_default))
      continue;
    findings.warn(
        kEnvironmentCheck, fmt::format("{}={}", profile.variable, *value),
        fmt::format("the {} cache of jobs that are started from here is there, not in the mount",
                    profile.name),
        fmt::format("unset it, or set it to {}/{}", mount, profile.name));
  }
}

struct Closed {
  std::string path;
  struct stat st {};
};

// Examines the directory at `path`, or its nearest existing ancestor below HOME. Returns it if another user owns it and
// `user` cannot write to it, or if stat(2) fails. If this process does not run as `user`, checks only the owner.
std::optional<Closed> find_closed(const std::string& path, const std::string& home, uid_t user) {
  for (std::string at = path; at.size() > home.size(); at.resize(at.find_last_of('/'))) {
    Closed closed{at, {}};
    if (::stat(at.c_str(), &closed.st) != 0) {
      if (errno == ENOENT) continue;
      return closed;
    }
    const bool is_closed =
        closed.st.st_uid != user && (::geteuid() != user || ::access(at.c_str(), W_OK | X_OK) != 0);
    return is_closed ? std::optional(closed) : std::nullopt;
  }
  return std::nullopt;
}

// Reports cache directories in HOME that belong to another user. sudo or a container build may have
// created them. They cause PermissionError as soon as the caches are used without a mount.
void check_default_directories(const std::vector<Profile>& profiles, Findings& findings) {
  constexpr const char* kName = "default caches";
  const auto home = find_variable("HOME");
  struct stat status {};
  if (!home || ::stat(home->c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return findings.warn(kName, home.value_or("HOME"), "there is no such home directory",
                         "caches that need it fail unless a variable moves them");
  }
  const uid_t user = ::geteuid() == 0 ? status.st_uid : ::geteuid();
  std::vector<std::string> seen;
  for (const Profile& profile : profiles) {
    for (const std::string& pattern : profile.default_paths) {
      const std::string path = expand_home(pattern);
      if (!path.starts_with(*home + "/")) continue;
      const auto closed = find_closed(path, *home, user);
      if (!closed || std::find(seen.begin(), seen.end(), closed->path) != seen.end()) continue;
      seen.push_back(closed->path);
      findings.warn(
          kName, closed->path,
          fmt::format("belongs to uid {}, mode {:04o}: without a mount, the {} cache of uid {} "
                      "fails there with PermissionError",
                      closed->st.st_uid, closed->st.st_mode & 07777, profile.name, user),
          fmt::format("'chown -R {} {}', or remove it", user, closed->path));
    }
  }
  if (seen.empty()) findings.ok(kName, *home, fmt::format("none is closed to uid {}", user));
}

}  // namespace

void check_environment(const DoctorContext& context, Findings& findings) {
  const auto before = findings.all().size();
  check_names(findings);
  check_ids(findings);
  check_switches(findings);
  check_log(findings);
  check_umask(findings);
  check_mount_variable(context, findings);
  const ProfileSet set =
      load_profiles(profile_directories(find_installation().profiles, context.config));
  check_cache_variables(context, set.profiles, findings);
  if (findings.all().size() == before) findings.ok(kEnvironmentCheck, "", "no contradictions");
  check_default_directories(set.profiles, findings);
}

}  // namespace cacheshim::cli
