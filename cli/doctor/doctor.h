// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

// The checks of `cacheshim doctor`. Each looks only; none changes anything, nor waits for a file
// system that does not answer.
namespace cacheshim::cli {

enum class Health { kOk, kWarning, kProblem };

struct Finding {
  Health health;
  std::string check;   // a few words, always the same for the same check
  std::string where;   // a path or a name; may be empty
  std::string what;    // what is so, and why that matters
  std::string advice;  // what to do; empty where there is nothing to do
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

// What is looked at.
struct Patient {
  std::string mount;      // "" for none
  std::string store;      // "" where it is not known
  nlohmann::json status;  // what the mount's daemon says of itself; null where it does not
  uid_t account = 0;      // that serves, or would serve, the store
  std::string config;     // as given, "" for the default one
  // What the daemon says, "" where it says nothing.
  std::string said(const char* key) const {
    return status.is_object() ? status.value(key, "") : "";
  }
  bool is_available = true;  // mount and store; a check says where they are not
};

// The machine: /dev/fuse, what a rootless mount needs, the kernel, dead mounts.
void check_machine(Findings& findings);
// The mount, when there is one to be looked at. Sets the rest of `patient` by what its daemon says.
void check_mount(Patient& patient, Findings& findings);
// What the mount's daemon says of entries that jobs reject. Called by check_mount().
void check_rejected(const Patient& patient, Findings& findings);
// Entries that name files elsewhere than below `mount_path`, as far as a bounded search finds them.
// Called by check_store().
void check_recorded_paths(const Patient& patient, int base, const std::string& mount_path,
                          Findings& findings);
// The store's directory, its file system, records and permissions.
void check_store(Patient& patient, Findings& findings);
// Configuration, profiles, library.
void check_installation(const Patient& patient, Findings& findings);
// What a job that is started from here would find: its variables and default cache directories.
void check_environment(const Patient& patient, Findings& findings);

enum class Reply { kGood, kDead, kNone };
// Whether the file system at `path` answers, asked for by a child, which may be left waiting.
Reply ask_file_system(const std::string& path);

}  // namespace cacheshim::cli
