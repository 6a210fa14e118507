// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/control_requests.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/exit_codes.h"
#include "fuse/control/control_request.h"
#include "fuse/control/job_requests.h"
#include "fuse/control/mount_requests.h"
#include "fuse/mount.h"
#include "store/threads/guard.h"

namespace cacheshim {
namespace {

// How a request is carried out.
enum class Kind {
  kShort,  // immediately, on the thread that has received it
  kLong,  // in its user's turn; dropped when its client no longer waits or the mount is being closed
  kLongUncancelable,  // in its user's turn, whether or not its client waits
};

struct Operation {
  void (*run)(const ControlRequest&);
  Kind kind;
};

// Runs the operation. The client gets an answer even if the operation throws, or stops because the mount is being
// closed.
void run_operation(const Operation& operation, const ControlRequest& request) {
  const bool may_stop = operation.kind == Kind::kLong;
  const bool has_run = run_guarded("a control request", [&] {
    if (!may_stop || request.wanted()()) operation.run(request);
  });
  (void)run_guarded("its answer", [&] {
    if (!has_run) {
      request.session->refuse("the daemon failed at it; see its log", kExitFailed);
    } else if (may_stop && request.mount.is_closing()) {
      request.session->refuse("the mount is being closed", kExitUnavailable);
    }
  });
}

const std::map<std::string, Operation>& operations() {
  static const std::map<std::string, Operation> kOperations = {
      {"job-list", {list_jobs, Kind::kShort}},
      {"job-show", {show_job, Kind::kShort}},
      {"job-start", {start_job, Kind::kShort}},
      {"job-end", {end_job, Kind::kLongUncancelable}},
      {"job-publish", {publish_job, Kind::kLong}},
      {"job-discard", {discard_job, Kind::kLongUncancelable}},
      {"job-wait", {wait_for_job, Kind::kShort}},
      {"close", {close_mount, Kind::kLongUncancelable}},
      {"reopen", {reopen_mount, Kind::kShort}},
      {"waiting", {list_waiting, Kind::kShort}},
      {"explain", {explain, Kind::kLong}},
      {"gc", {collect_garbage, Kind::kLong}},
      {"job-prefetch", {prefetch, Kind::kLong}},
      {"verify", {verify, Kind::kLong}},
      {"job-layer", {show_layer, Kind::kLong}},
  };
  return kOperations;
}

// Returns the user whose turn the request takes. Root's requests take separate turns for each job owner, apart from the
// owners' own requests: if root ends the jobs of several users, one user's jobs must not delay another's.
FairUser user_of(const ControlRequest& request) {
  if (request.caller.uid != 0) return request.caller.uid;
  const auto job = request.mount.jobs.find(request.text("job"));
  return {job != nullptr ? job->views.owner().value_or(0) : 0, /*is_by_root=*/true};
}

}  // namespace

void run_control_request(Mount& mount, const Caller& caller, const nlohmann::json& fields,
                         const std::shared_ptr<ControlSession>& session) {
  ControlRequest request{mount, caller, fields, session};
  const std::string op = request.text("op");
  if (op == "explain") request.inspector.emplace(caller);
  const auto found = operations().find(op);
  if (found == operations().end()) {
    return session->refuse(fmt::format("unknown request '{}'", op), kExitUsage);
  }
  Operation operation = found->second;
  const bool changes_nothing = operation.kind == Kind::kLongUncancelable && request.flag("dry_run");
  if (changes_nothing) operation.kind = Kind::kLong;
  if (operation.kind == Kind::kShort) return run_operation(operation, request);
  FairTask task{user_of(request), [operation, request] { run_operation(operation, request); }};
  if (operation.kind == Kind::kLong) {
    task.is_wanted = [session] { return session->is_waiting(); };
  }
  if (!mount.tasks.try_post(std::move(task))) {
    session->refuse("too many requests wait already; try again", kExitFailed);
  }
}

}  // namespace cacheshim
