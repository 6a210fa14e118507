// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include <sys/sysmacros.h>

#include <array>
#include <cstring>
#include <optional>

#include "common/exit_codes.h"
#include "common/job_id.h"
#include "common/loaded_symbol.h"
#include "common/names.h"
#include "common/root_process.h"
#include "common/route_table.h"
#include "shim/direct/direct_view.h"
#include "shim/direct/fd_link.h"
#include "shim/errno_guard.h"
#include "shim/hooks/timed_read.h"
#include "shim/report.h"
#include "shim/routing/builtin_routes.h"
#include "shim/routing/mount_file.h"
#include "shim/runtime.h"
#include "shim/start/child_environment.h"
#include "shim/start/process_environment.h"
#include "shim/start/process_files.h"
#include "shim/start/start_plan.h"
#include "shim/start/trusted_paths.h"

// The start of a process. A daemon that hangs must not block the start of programs. So this code accesses the mount's
// paths only with a time limit (except in leads_to(), for a variable whose path contains a symlink). This code runs in
// every process of a job, so it reads only a few files in /proc, and the routes once. Afterwards, the library either is
// active or has no effect at all.
//
// setenv and putenv are resolved as the interposed functions are, in the objects after this
// library: bash exports functions of these names, which use tables that bash has not set up yet.
namespace cacheshim {
namespace {

// A wide margin: with hundreds of runnable threads on the machine, an answer takes tens of ms.
constexpr int kRoutesTimeoutMs = 3000;
constexpr std::string_view kWarnedVariable = "CACHESHIM_WARNED";
constinit char warned_entry[] = "CACHESHIM_WARNED=0";  // becomes part of the environment
constinit char mount_text[PATH_MAX] = {};
alignas(RouteTableHeader) constinit char routes_text[65536] = {};
constinit RealFunction<decltype(&::setenv)> real_setenv{"setenv"};
constinit RealFunction<decltype(&::putenv)> real_putenv{"putenv"};

// Whether this process has called warn().
constinit bool has_warned = false;

// Prints a line about the start, unless an ancestor of this process has printed one: a job can have thousands of
// processes, and all of them would print the same line.
void warn(const ProcessEnvironment& environment, std::initializer_list<std::string_view> line) {
  has_warned = true;
  if (!environment.is_on(kWarnedVariable)) report_line(line);
}

// Collects the variables and sets them only at the end, because another profile may name one of them in `unless`.
class CollectedActions final : public StartActions {
 public:
  explicit CollectedActions(const ProcessEnvironment& environment) : environment_(environment) {}

  void set_variable(const char* name, const char* value) override {
    if (count_ < variables_.size()) variables_.data()[count_++] = {name, value};
  }
  bool leads_to(const char* path, const char* directory) override {
    char first;
    // Most paths are not symlinks. For them, this function need not stat the mount, which would send a request to the
    // daemon.
    if (::readlink(path, &first, sizeof first) <= 0) return false;
    return runtime::same_directory(path, directory);
  }
  void refuse_route(std::string_view item) override {
    warn(environment_,
         {kRoutesVariable, ": '", item, "' is not /PATH=NAME; running without this route"});
  }
  void apply() const {
    for (std::size_t i = 0; i < count_; ++i) {
      const Variable& variable = variables_.data()[i];
      // if setenv fails, only the default path is routed
      (void)real_setenv(variable.name, variable.value, 1);
    }
  }

 private:
  struct Variable {
    const char* name;
    const char* value;
  };
  const ProcessEnvironment& environment_;
  std::array<Variable, kMaxRoutes> variables_;
  std::size_t count_ = 0;
};

// Returns the mount's path, from the environment or by default. Returns an empty path if it is
// relative, contains "..", is "/" or is too long.
std::string_view find_mount_path(const ProcessEnvironment& environment) {
  std::string_view given = environment.find(kMountVariable);
  if (given.empty()) given = kDefaultMountPoint;
  return {mount_text, normalise_path(given, mount_text, sizeof mount_text)};
}

// Prints a line, and sets a variable so that the descendants of this process do not print it again. In strict mode,
// every process prints the line and exits.
void run_without_mount(const ProcessEnvironment& environment,
                       std::initializer_list<std::string_view> why) {
  const bool strict = environment.is_on(kStrictVariable);
  if (strict || !environment.is_on(kWarnedVariable)) report_line(why);
  if (strict) ::_exit(kExitUnavailable);
  (void)real_setenv(kWarnedVariable.data(), "1", 1);  // if setenv fails, child processes repeat the line
}

// The parent directories of run directories, for daemons of root and of users.
using RunBases = std::array<std::string_view, 2>;

Result<MountState> find_mount(const RunBases& bases, std::string_view path) {
  for (const std::string_view base : bases) {
    PathBuffer directory;
    const std::size_t size = base.empty() ? 0 : run_directory_of(path, base, directory);
    if (size == 0) continue;
    if (const auto mount = probe_mount(path, {directory.text, size})) return *mount;
  }
  return read_mount_state(path);
}

Result<RouteTable> read_routes(std::string_view base, std::string_view mount) {
  PathBuffer directory;
  PathBuffer path;
  const std::size_t size = run_directory_of(mount, base, directory);
  if (size == 0 || join_path(path, {{directory.text, size}, "/", kRoutesFile}) == 0) {
    return Errno(ENOENT);
  }
  CACHESHIM_TRY(got, read_file(path.text, routes_text, sizeof routes_text));
  return RouteTable::parse({routes_text, got});
}

// Reads the routes through the mount, for processes that do not see the run directory, as in most
// containers.
Result<RouteTable> read_routes_of_mount(std::string_view mount) {
  PathBuffer path;
  if (join_path(path, {mount, "/", kControlName, "/", kRoutesFile}) == 0) return Errno(ENOENT);
  CACHESHIM_TRY(got, read_file_in_time(path.text, routes_text, sizeof routes_text, kRoutesTimeoutMs));
  return RouteTable::parse({routes_text, got});
}

// Reports why the routes cannot be read. Prints nothing if the daemon is dead, if an older daemon
// has no such file, or if a sandbox allows no child process: the built-in routes are used without a
// message.
void report_unreadable_routes(const ProcessEnvironment& environment, Errno error,
                              std::string_view mount) {
  std::string_view why;
  if (error == ETIMEDOUT) why = "the daemon does not answer";
  if (error == EINVAL || error == EFBIG) why = "it is not a route table";
  if (why.empty()) return;
  warn(environment, {"cannot use '", mount, "/", kControlName, "/", kRoutesFile, "': ", why,
                     "; running with the built-in routes"});
}

// Returns the daemon's routes from its run directory. If this process cannot see that directory but sees the whole
// mount, returns the routes that it reads through the mount. In all other cases, and if the daemon's routes are
// unusable, returns the built-in routes.
Result<RouteTable> find_routes(const ProcessEnvironment& environment, const RunBases& bases,
                               MountKind kind, std::string_view mount) {
  for (const std::string_view base : bases) {
    if (base.empty()) continue;
    Result<RouteTable> routes = read_routes(base, mount);
    if (routes) return routes;
    if (routes.failed_with(ENOENT) || routes.failed_with(EACCES)) continue;
    warn(environment, {"cannot use the routes in '", base, "/", kRunDirName, "' of the mount at ",
                       mount, "; running with the built-in ones"});
    return RouteTable::parse(builtin_routes());
  }
  if (kind == MountKind::kWhole) {
    const Result<RouteTable> routes = read_routes_of_mount(mount);
    if (routes) return routes;
    report_unreadable_routes(environment, routes.error(), mount);
  }
  return RouteTable::parse(builtin_routes());
}

JobId find_job(const ProcessEnvironment& environment) {
  char cgroup[4096];
  std::size_t length = 0;
  const bool asks = environment.find(kJobVariable).empty();
  if (asks && !environment.find("SLURM_JOB_ID").empty()) {
    const Result<std::size_t> got = read_file(cgroup_path(), cgroup, sizeof cgroup);
    if (got) length = *got;
  }
  const JobId job = job_of_process(environment, {cgroup, length});
  // if the id is empty, the daemon finds the caller's job itself
  return is_of_another_uid(job.view(), ::geteuid()) ? JobId() : job;
}

// Returns `job`, unless the run directory shows that this job belongs to another user. In that case, returns the job
// uid-UID.JOB, which the daemon gives to this process instead. Also returns `job` if there is no run directory: after
// the first EACCES, the process then uses the symlinks in the mount's root, which lead to the job uid-UID.JOB
// (runtime::fell_back()).
JobId find_usable_job(const ProcessEnvironment& environment, const RunBases& bases,
                      std::string_view mount, JobId job) {
  const uid_t uid = ::geteuid();
  if (job.empty() || uid == 0 || owner_of_id(job.view())) return job;
  for (const std::string_view base : bases) {
    PathBuffer directory;
    const std::size_t size = base.empty() ? 0 : run_directory_of(mount, base, directory);
    if (size == 0) continue;
    const std::optional<uid_t> owner = owner_of_view({directory.text, size}, job.view());
    if (!owner || *owner == uid) continue;
    const JobId own = JobId::for_uid(uid, job.view());
    FdLink other;
    warn(environment, {"job '", job.view(), "' belongs to ",
                       other.name("uid ", static_cast<int>(*owner)), "; using job '", own.view(),
                       "' instead"});
    return own;
  }
  return job;
}

// Returns false, and reports why, if the routes in CACHESHIM_ROUTES may come from another user: such routes could
// replace any file that root reads.
bool may_add_routes(const ProcessEnvironment& environment) {
  if (environment.find(kRoutesVariable).empty() || !is_root_process() ||
      !has_environment_of_another_user(environment)) {
    return true;
  }
  warn(environment, {kRoutesVariable, " may come from the user who ran sudo; root ignores it"});
  return false;
}

void set_routes(const ProcessEnvironment& environment, const RunBases& bases,
                const MountState& mount, std::string_view path) {
  const bool bound = mount.kind == MountKind::kBoundView;
  const JobId job =
      bound ? JobId() : find_usable_job(environment, bases, path, find_job(environment));
  Routes& routes = runtime::router.routes();
  if (!routes.set_mount(path, job.view())) return;
  CollectedActions actions(environment);
  const auto table = find_routes(environment, bases, mount.kind, routes.mount());
  if (table) plan_profiles(environment, *table, routes, actions);
  // If two routes have the same path, the later one applies.
  if (may_add_routes(environment)) plan_own_routes(environment, routes, actions);
  runtime::Start start;
  start.device = ::gnu_dev_makedev(mount.major, mount.minor);
  start.strict = environment.is_on(kStrictVariable);
  char* const value = warned_entry + sizeof warned_entry - 2;
  if (has_warned || environment.is_on(kWarnedVariable)) *value = '1';
  if (real_putenv(warned_entry) == 0) start.warned = value;
  actions.apply();
  child_environment::prepare(::environ, start.warned == nullptr ? nullptr : warned_entry);
  direct::set_user_run_base(bases[1]);
  runtime::activate(start);
}

[[gnu::constructor]] void start_process() {
  const ErrnoGuard errno_guard;
  note_next_objects();
  if (!is_glibc_loaded()) return;  // without glibc the library redirects nothing
  if (is_marked_program(kProgramMark)) return;
  settle_reports();
  const ProcessEnvironment environment;
  if (environment.is_disabled()) return;
  const std::string_view path = find_mount_path(environment);
  if (path.empty()) {
    return run_without_mount(environment, {kMountVariable, " '", environment.find(kMountVariable),
                                           "' is not an absolute path; running without it"});
  }
  const RunBases bases = {run_base(), user_run_base(environment)};
  const Result<MountState> mount = find_mount(bases, path);
  if (!mount) {
    return run_without_mount(environment,
                             {"cannot read ", mountinfo_path(), "; running without ", path});
  }
  if (mount->kind == MountKind::kNone) {
    return run_without_mount(environment, {"no cacheshim mount at ", path, "; running without it"});
  }
  if (mount->kind == MountKind::kForbidden) {
    return run_without_mount(environment, {"another user has mounted ", path,
                                           ", so root does not use it; running without it"});
  }
  set_routes(environment, bases, *mount, path);
}

}  // namespace
}  // namespace cacheshim
