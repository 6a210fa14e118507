// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include "cacheshim_build.h"
#include "cli/control_client.h"
#include "cli/doctor/doctor.h"
#include "cli/failure.h"
#include "cli/mounting/dead_mount.h"
#include "cli/paths.h"
#include "cli/text.h"
#include "common/mount_info.h"
#include "fuse/daemon.h"
#include "store/sys/json_text.h"

namespace cacheshim::cli {
namespace {

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

// Returns false if the remaining checks are not possible.
bool check_daemon(DoctorContext& context, Findings& findings) {
  constexpr const char* kCheck = "mount";
  const Reply reply = probe_file_system(context.mount);
  if (reply == Reply::kNone) {
    findings.problem(kCheck, context.mount, "does not answer",
                     hung_mount_advice(context.mount));  // without resolve_path(), which would hang too
    return false;
  }
  if (reply == Reply::kDead) {
    findings.problem(kCheck, context.mount, "its daemon is dead",
                     dead_mount_advice(resolve_path(context.mount)));
    return false;
  }
  context.mount = resolve_path(context.mount);
  try {
    const auto status = parse_json(ControlClient(context.mount).read("status"));
    if (status.is_object()) context.status = status;
  } catch (const Failure& failure) {
    findings.problem(kCheck, context.mount, failure.what(), "");
    return false;
  }
  return true;
}

void check_version(const DoctorContext& context, Findings& findings) {
  const std::string version = context.said("version");
  const std::string what =
      fmt::format("served by pid {}, version {}", count_of(context.status, "pid"), version);
  if (version == CACHESHIM_VERSION) return findings.ok("mount", context.mount, what);
  findings.warn("mount", context.mount,
                fmt::format("{}; this program is {}", what, CACHESHIM_VERSION),
                "unmount and mount again, when no job uses it");
}

void check_options(const DoctorContext& context, const MountEntry& mount, Findings& findings) {
  constexpr const char* kCheck = "mount options";
  if (has_word(mount.options, "noexec")) {
    return findings.problem(kCheck, context.mount,
                            "noexec: compiled modules in the caches cannot be loaded",
                            "mount it without noexec");
  }
  if (has_word(mount.options, "ro")) {
    return findings.warn(kCheck, context.mount, "ro: jobs cannot add to their caches",
                         "mount it without ro if they should");
  }
  findings.ok(kCheck, context.mount, mount.options);
}

void check_requests(const DoctorContext& context, Findings& findings) {
  constexpr const char* kCheck = "requests";
  if (context.said("requests") == "io_uring") {
    return findings.ok(kCheck, context.mount,
                       "come over io_uring, on the core of the caller");
  }
  std::string text = "come over /dev/fuse";
  if (char is_on = 0; std::ifstream(kRingParameter) >> is_on) {
    text += is_on == 'Y' ? "; the daemon's log says why not over io_uring"
                         : fmt::format(
                               "; over io_uring they would be answered faster: write Y to {} "
                               "before it is mounted",
                               kRingParameter);
  }
  findings.ok(kCheck, context.mount, text);
}

void check_features(const DoctorContext& context, Findings& findings) {
  constexpr const char* kFresh = "raw changes";
  const std::string watch = context.said("watch");
  if (watch == "none") {
    findings.warn(
        kFresh, context.mount,
        "not watched: what other processes change in the store is seen within 1 s",
        "as root, fanotify works; otherwise raise fs.inotify.max_user_watches");
  } else {
    findings.ok(kFresh, context.mount, "seen immediately, by " + watch);
  }
  const bool passes = context.status.value("passthrough", false);
  findings.ok("passthrough", context.mount,
              passes ? "on: the kernel reads and writes files of layers by itself"
                     : "off: reads and writes of layers go through the daemon");
  check_requests(context, findings);
  if (context.said("locks") == "this mount") {
    findings.warn(
        "locks", context.mount,
        "the store's file system supports none: they work only among processes of this mount",
        "on NFS local_lock=none with a lock service, on Lustre the option flock; otherwise no other "
        "node, and no process outside the mount, may use the lock files");
  }
}

void check_run_directory(const DoctorContext& context, Findings& findings) {
  constexpr const char* kCheck = "run directory";
  const std::string path = context.said("run_dir");
  if (path.empty()) {
    return findings.warn(
        kCheck, "",
        "the daemon has none: jobs read the base through the mount, and there is no log",
        "set XDG_RUNTIME_DIR where it is mounted");
  }
  if (::access((path + "/routes").c_str(), R_OK) != 0) {
    return findings.warn(kCheck, path,
                         fmt::format("cannot be read from here ({}): jobs take their routes and read "
                                     "the base through the mount",
                                     std::generic_category().message(errno)),
                         "in a container, bind it at the same path");
  }
  findings.ok(kCheck, path, "can be read");
}

}  // namespace

void check_mount(DoctorContext& context, Findings& findings) {
  context.is_available = check_daemon(context, findings);
  if (!context.is_available) return;
  if (context.store.empty()) context.store = context.said("store");
  check_version(context, findings);
  if (const auto entry = find_mount(read_mounts(), context.mount)) {
    context.account = owner_of(*entry).value_or(context.account);
    check_options(context, *entry, findings);
  }
  check_features(context, findings);
  check_run_directory(context, findings);
  check_rejected(context, findings);
}

}  // namespace cacheshim::cli
