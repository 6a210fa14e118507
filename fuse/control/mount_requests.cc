// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/mount_requests.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/exit_codes.h"
#include "fuse/control/control_request.h"
#include "fuse/mount.h"
#include "store/sys/json_text.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kLongestClosing = 24 * 3600;  // seconds

bool may_close(const ControlRequest& request) {
  if (request.caller.uid == 0 || request.caller.uid == ::geteuid()) return true;
  request.session->refuse("only root, or the user who mounted it, may close this mount", kExitFailed);
  return false;
}

// Returns true if the caller may change the base; otherwise refuses the request.
bool require_keeper(const ControlRequest& request) {
  if (request.caller.uid == 0 || request.caller.uid == sys::own_uid()) return true;
  request.session->refuse("only root, or the user who mounted it, may do that", kExitFailed);
  return false;
}

void refuse_error(const ControlRequest& request, Errno error) {
  if (error.code() == EWOULDBLOCK) {
    return request.session->refuse("another gc or verify is running on this store", kExitFailed);
  }
  if (error.code() == ECANCELED) return;  // run_operation() answers if the client still waits
  request.session->refuse(std::strerror(error.code()), kExitFailed);
}

}  // namespace

// `cacheshim unmount` requests this if the mount is in use, perhaps only by processes that wait for locks or jobs.
void close_mount(const ControlRequest& request) {
  if (!may_close(request)) return;
  int open_files = 0;
  for (const auto& job : request.mount.jobs.all()) open_files += job->use.open_files;
  const auto waited_through = static_cast<int>(request.mount.locks.state().waiting_handles);
  if (open_files > waited_through && !request.flag("in_use")) {
    return request.session->refuse("files of the mount are open", kExitFailed);
  }
  const nlohmann::json seconds = request.fields.value("seconds", nlohmann::json());
  const auto limit = seconds.is_number_unsigned() ? seconds.get<std::uint64_t>() : kLongestClosing;
  request.mount.close_waits_for(std::chrono::seconds(std::min(limit, kLongestClosing)));
  request.session->answer({{"ok", true}});
}

// Lists the processes that wait for locks, so that `cacheshim unmount` can distinguish them from other users of the
// mount.
void list_waiting(const ControlRequest& request) {
  if (!may_close(request)) return;
  Json processes = Json::array();
  for (const pid_t process : request.mount.locks.state().waiting_processes) {
    processes.push_back(process);
  }
  request.session->answer({{"ok", true}, {"processes", std::move(processes)}});
}

void reopen_mount(const ControlRequest& request) {
  if (!may_close(request)) return;
  request.mount.reopen_waits();
  request.session->answer({{"ok", true}});
}

void collect_garbage(const ControlRequest& request) {
  if (!require_keeper(request)) return;
  const bool dry_run = request.flag("dry_run");
  request.session->progress("listing the base", 0, 0);
  const auto report = request.mount.keeper.collect_garbage(dry_run);
  if (!report) return refuse_error(request, report.error());
  Json evicted = Json::array();
  for (const EvictedUnit& one : report->evicted) {
    Json line;
    put_name(line, "entry", one.unit.unit);
    line["bytes"] = one.unit.bytes;
    line["files"] = one.unit.files;
    line["last_use"] = one.unit.last_use;
    line["reason"] = one.reason;
    line["young"] = one.is_young;
    evicted.push_back(std::move(line));
  }
  request.session->answer({{"ok", true},
                           {"limits", request.mount.options.gc.are_set()},
                           {"dry_run", dry_run},
                           {"bytes_before", report->bytes_before},
                           {"files_before", report->files_before},
                           {"bytes", report->bytes},
                           {"files", report->files},
                           {"over", report->is_over},
                           {"evicted", std::move(evicted)}});
}

void verify(const ControlRequest& request) {
  if (!require_keeper(request)) return;
  const bool repair = request.flag("repair");
  const auto report =
      request.mount.keeper.verify(repair, request.progress("verifying entries"), request.wanted());
  if (!report) return refuse_error(request, report.error());
  Json damaged = Json::array();
  for (const DamagedFile& file : report->damaged) {
    Json line;
    put_name(line, "path", file.path);
    put_name(line, "entry", file.unit);
    line["why"] = file.why;
    line["repaired"] = std::find(report->repaired.begin(), report->repaired.end(), file.unit) !=
                       report->repaired.end();
    damaged.push_back(std::move(line));
  }
  request.session->answer({{"ok", true},
                           {"files", report->files},
                           {"bytes", report->bytes},
                           {"unrecorded", report->unrecorded},
                           {"damaged", std::move(damaged)},
                           {"repaired", report->repaired}});
}

}  // namespace cacheshim
