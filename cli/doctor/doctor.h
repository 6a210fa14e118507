// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cacheshim_build.h"

// The checks of `cacheshim doctor`. They are read-only. The checks of mounts wait at most 5 s for a
// file system that does not answer (probe_file_system()); the checks of the store and of HOME may
// wait longer.
namespace cacheshim::cli {

enum class Health { kOk, kWarning, kProblem };

struct Finding {
  Health health;
  std::string check;   // a few words, always the same for one check
  std::string where;   // a path or a name; may be empty
  std::string what;    // the finding, and why it matters
  std::string advice;  // what to do; empty if nothing
};

class Findings {
 public:
  void ok(std::string_view check, std::string_view where, std::string_view what);
  void warn(std::string_view check, std::string_view where, std::string_view what,
            std::string_view advice);
  void problem(std::string_view check, std::string_view where, std::string_view what,
               std::string_view advice);
  const std::vector<Finding>& all() const { return all_; }
  std::size_t count(Health health) const;

 private:
  std::vector<Finding> all_;
};

// The mount, store and configuration that the checks examine.
struct DoctorContext {
  std::string mount;      // "" if there is none
  std::string store;      // "" if it is unknown
  nlohmann::json status;  // the daemon's status; null if there is none
  uid_t account = 0;      // the account that serves, or would serve, the store
  std::string config;     // the configuration file that the user has named; "" for the default file
  // Returns the member `key` of the daemon's status, "" if there is none.
  std::string said(const char* key) const {
    return status.is_object() ? status.value(key, "") : "";
  }
  bool is_available = true;  // whether mount and store are usable; if not, a check reports it
};

// Checks the machine: /dev/fuse, the requirements of a rootless mount, the kernel, and dead mounts.
void check_machine(Findings& findings);
// Checks the mount, if there is one. Completes `context` with what the mount and its daemon report.
void check_mount(DoctorContext& context, Findings& findings);
// Checks the daemon's counts of entries that jobs reject. Called by check_mount().
void check_rejected(const DoctorContext& context, Findings& findings);
// Reports entries that name files outside `mount_path`, and entries that not every user may read. The search ends after
// 2 s, so it may miss entries. Called by check_store().
void check_entries(const DoctorContext& context, int base, const std::string& mount_path,
                   Findings& findings);
// Checks the store's directory, its file system, records and permissions.
void check_store(DoctorContext& context, Findings& findings);
// Checks configuration, profiles and library.
void check_installation(const DoctorContext& context, Findings& findings);
#if CACHESHIM_HAS_REMOTE
// Checks the keys of the remote tier, and whether its engine answers. Does nothing if the configuration names no
// engine. Waits at most for the timeout in the configuration.
void check_remote(const DoctorContext& context, Findings& findings);
#endif
// Checks the variables and default cache directories of a job that is started in this environment.
void check_environment(const DoctorContext& context, Findings& findings);

enum class Reply { kGood, kDead, kNone };
// Tests whether the file system at `path` replies. A child process makes the call, so that this
// process waits at most 5 s; the child may wait longer.
Reply probe_file_system(const std::string& path);

}  // namespace cacheshim::cli
