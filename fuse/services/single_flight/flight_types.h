// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "fuse/requests/remote_entries.h"
#include "fuse/services/single_flight/builder_work.h"
#include "store/locks/lease_files.h"
#include "store/sys/process.h"

// The argument and result types of Flights.
namespace cacheshim {

class Job;
class UserAccount;

using FlightTime = std::chrono::steady_clock::time_point;

// The state of a name and its entry in a job's view.
struct EntryState {
  bool has_name = false;
  // The base has the file that completes the entry. If the profile does not define when an entry is complete: the name
  // exists.
  bool is_complete = false;
  // The job's layer has the entry's directory. Always true for an entry that is built elsewhere and renamed into place.
  bool is_begun = false;
  // Whether a file of this name can complete its entry. If not, no process adds the name to an entry that is already
  // complete.
  bool completes = false;
};

// A request for the lease of `path`, a name in the store that the caller's lookup has not found.
struct LeaseRequest {
  std::string path;
  std::shared_ptr<Job> job;
  bool publishes;  // whether all jobs will see the result; otherwise only `job` will
  Lineage lineage;
  pid_t thread;
  std::string entry = {};  // the entry that `path` names, or to which it belongs
  // The entry's rule if the rule has one_by_one, otherwise null. A thread builds only one entry of the rule at a time.
  const void* rule = nullptr;
  uid_t uid = 0;  // the user of the process
  UserAccount* account = nullptr;  // charged for leases and waits; null: no account is charged

  bool is_entry() const { return entry == path; }
  const Process& process() const { return lineage.front(); }
};

// A change that a job has just made in an entry's directory. It shows that the job is still building in the directory,
// or that the job has given up.
enum class BuildStep {
  kTemporary,  // created a file that is not a part of the entry
  kPart,       // created or renamed a part of the entry
  kCleared,    // removed a temporary file: if the job has made no part, the build has failed
};

// The builder and the waiters of a name, for display.
struct FlightDescription {
  std::string path;
  std::string job;  // empty: the lease is for all jobs
  pid_t builder;    // the builder; 0: none, or another daemon has granted the lease
  bool is_sought;   // the entry may still come from another machine
  std::size_t waiting;
  std::string builder_job;  // empty if `builder` is 0
  std::vector<std::string> waiting_jobs;
};

struct FlightOptions {
  std::chrono::milliseconds timeout;  // 0: no process ever waits
  LeaseFiles leases;
  // Returns the state of `path` in the job's view. Takes Overlay::mutex().
  std::function<EntryState(const Job& job, const std::string& path)> inspect;
  // Returns the jobs that are publishing the entry. Called with LeaseTable::mutex held.
  std::function<std::vector<std::shared_ptr<Job>>(const std::string& entry)> publishers =
      [](const std::string&) { return std::vector<std::shared_ptr<Job>>(); };
  // `builds`: whether a thread of the job is now building an entry whose rule has one_by_one. Called with
  // LeaseTable::mutex held.
  std::function<void(Job& job, bool builds)> note_building = [](Job&, bool) {};
  // As RemoteEntries::seek(), for the entry of `path`. Called with LeaseTable::mutex held.
  std::function<std::unique_ptr<RemoteLease>(const std::string& path, bool builds_for_all,
                                             std::function<void()> on_settled)>
      seek = [](const std::string&, bool, const std::function<void()>&) { return nullptr; };
  // Return the current time and a builder's work; replaced in tests.
  std::function<FlightTime()> now = std::chrono::steady_clock::now;
  std::function<std::optional<BuilderWork>(pid_t builder, const Process& thread)> work_of =
      cacheshim::work_of;
  // The functions that watch processes; replaced in tests.
  std::function<UniqueFd(const Process&)> watch = watch_process;
  std::function<bool(const Process&)> is_stopped = cacheshim::is_stopped;
};

}  // namespace cacheshim
