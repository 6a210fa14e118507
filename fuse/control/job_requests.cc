// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/job_requests.h"

#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/exit_codes.h"
#include "common/printable_text.h"
#include "fuse/control/control_directory.h"
#include "fuse/control/control_request.h"
#include "fuse/control/explain.h"
#include "fuse/control/inspector.h"
#include "fuse/control/plan_rows.h"
#include "fuse/mount.h"
#include "store/overlay/layer_units.h"
#include "store/sys/json_text.h"
#include "store/sys/paths.h"

namespace cacheshim {
namespace {

using Json = nlohmann::ordered_json;

Json describe(const PublishReport& report) {
  return {{"ok", true},
          {"entries", report.entries},
          {"files", report.files},
          {"bytes", report.bytes},
          {"conflicts", report.conflicts},
          {"incomplete", report.incomplete},
          {"refused", report.refused}};
}

// Refuses a request on another user's job. `rights` completes the message "… only its own user and root may …".
void refuse_non_owner(const ControlRequest& request, const Job& job, std::string_view rights) {
  const auto owner = job.views.owner();
  request.session->refuse(
      fmt::format("job '{}' belongs to {}, not to uid {}: only its own user and root may {}",
                  job.id, owner ? fmt::format("uid {}", *owner) : "root", request.caller.uid,
                  rights),
      kExitFailed);
}

// Returns true if the caller may change the job; otherwise refuses the request. The message says that nothing was done,
// except for `cacheshim run`, which itself prints what it does instead.
bool require_owner(const ControlRequest& request, const Job& job) {
  if (job.views.may_change(request.caller.uid)) return true;
  refuse_non_owner(request, job,
                   request.flag("run") ? "use or change it" : "use or change it; nothing was done");
  return false;
}

// Returns true if the job id is valid; otherwise refuses the request.
bool require_valid(const std::string& id, const ControlRequest& request) {
  if (is_job_id(id)) return true;
  request.session->refuse(fmt::format("invalid job id '{}'", id), kExitUsage);
  return false;
}

// Returns the job to which `id` refers for this caller (JobRights); if there is none, the job with exactly this id.
std::shared_ptr<Job> find_job(const ControlRequest& request, const std::string& id) {
  const Mount& mount = request.mount;
  const JobClaim claim = mount.rights.claim_of(request.caller, id);
  const auto own = mount.jobs.find(std::string(claim.job.view()));
  return own != nullptr ? own : mount.jobs.find(id);
}

// Returns the active job that the request names. Refuses the request and returns null if there is none, or if the
// caller may not change it.
std::shared_ptr<Job> require_job(const ControlRequest& request) {
  const std::string id = request.text("job");
  if (!require_valid(id, request)) return nullptr;
  auto job = find_job(request, id);
  if (job == nullptr || !job->life.is_active()) {
    request.session->refuse(fmt::format("no active job '{}' in this mount", id), kExitFailed);
    return nullptr;
  }
  return require_owner(request, *job) ? job : nullptr;
}

using JobState = JobTable::State;

const char* name_of(const JobState& state) { return state.is_active ? "active" : "ended"; }

// Appends a job to the table of all jobs, as one line with tabs between the cells. With a JSON object for each of ten
// thousand jobs, `job list` would spend most of its time on building and parsing these objects. The text needs no
// escaping: job ids and cycles contain no characters that JSON escapes.
void append_row(const JobState& state, std::string& text) {
  const Job& job = *state.job;
  const std::optional<uid_t> owner = job.views.owner();
  fmt::format_to(std::back_inserter(text), R"({}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n)", job.id,
                 job.life.cycle(), name_of(state), to_string(state.outcome),
                 owner ? fmt::to_string(*owner) : "-", job.life.started(),
                 job.use.open_files.load(), job.use.runs.load());
}

std::string list_rows(const std::vector<JobState>& states) {
  constexpr std::size_t kRowBytes = 80;
  std::string rows;
  rows.reserve(states.size() * kRowBytes);
  for (const JobState& state : states) append_row(state, rows);
  return R"({"ok":true,"columns":["job","cycle","state","outcome","uid","started","open_files",)"
         R"("runs"],"rows":")" +
         rows + "\"}";
}

std::string list_objects(const std::vector<JobState>& states, const ControlRequest& request) {
  const std::string& layers_dir = request.mount.options.layers_dir;
  constexpr std::size_t kObjectBytes = 360;
  std::string listed = R"({"ok":true,"jobs":[)";
  listed.reserve(states.size() * kObjectBytes);
  for (const JobState& state : states) {
    if (listed.back() != '[') listed += ',';
    append_job(state, layers_dir, state.job->views.may_inspect(request.caller.uid), listed);
  }
  return listed + "]}";
}

// Returns the job that the request names, active or not. Refuses the request and returns null if there is none.
std::shared_ptr<Job> require_known_job(const ControlRequest& request) {
  const std::string id = request.text("job");
  if (!require_valid(id, request)) return nullptr;
  auto job = find_job(request, id);
  if (job == nullptr) {
    request.session->refuse(fmt::format("no job '{}' in this mount", id), kExitFailed);
  }
  return job;
}

// As require_known_job(), but also refuses if the caller may not learn what the job's layer contains.
std::shared_ptr<Job> require_own_job(const ControlRequest& request) {
  const auto job = require_known_job(request);
  if (job == nullptr || job->views.may_inspect(request.caller.uid)) return job;
  refuse_non_owner(request, *job, "see it");
  return nullptr;
}

std::optional<uid_t> uid_to_start_for(const ControlRequest& request) {
  const nlohmann::json uid = request.fields.value("uid", nlohmann::json());
  if (!uid.is_number_unsigned() || uid.get<std::uint64_t>() >= static_cast<uid_t>(-1))
    return std::nullopt;
  return uid.get<uid_t>();
}

// Returns the claim for the job to start: the claim of the user `uid`, or without a `uid` the caller's claim.
JobClaim claim_to_start(const ControlRequest& request, const std::string& id,
                        std::optional<uid_t> uid) {
  const JobRights& rights = request.mount.rights;
  JobClaim claim = uid ? rights.claim_for(*uid, id)
                       : rights.claim_of(request.caller, id, request.flag("shared_uids"));
  claim.is_roots = request.caller.uid == 0;
  const std::string cycle = request.text("cycle");
  if (!cycle.empty()) claim.cycle = JobId::from_text(cycle);
  return claim;
}

// Returns true if the caller may start a job with this id for the user `uid`; otherwise refuses the request.
bool require_startable(const ControlRequest& request, const std::string& id,
                       std::optional<uid_t> uid) {
  const uid_t caller = request.caller.uid;
  if (uid && caller != 0 && caller != *uid) {
    request.session->refuse("only root may start a job for another user", kExitFailed);
    return false;
  }
  const bool is_roots_choice = caller == 0 && !uid;
  if (is_roots_choice || !is_of_another_uid(id, uid.value_or(caller))) return true;
  request.session->refuse(fmt::format("job '{}' belongs to another user", id), kExitFailed);
  return false;
}

void refuse_job(const ControlRequest& request, const std::string& id, Errno error) {
  const Limit limit = error.code() == EMFILE ? Limit::kHandles : Limit::kJobs;
  request.session->refuse(
      fmt::format(
          "cannot begin job '{}': uid {} has reached the limit {} of the mount; end other jobs "
          "first; nothing was done",
          id, request.caller.uid, row_of(limit).key),
      kExitFailed);
}

bool is_job_name(std::string_view name) {
  constexpr std::size_t kMostBytes = 255;
  return !name.empty() && name.size() <= kMostBytes && printable(name) == name;
}

void plan_publishing(const ControlRequest& request, Job& job) {
  PublishReport total;
  PlanRows plan;
  for (const UnitPlan& unit : request.mount.publishing.publisher().plan_all(
           job.overlay, job.publishing, false, request.progress("looking at entries"),
           request.wanted())) {
    const bool is_kept = !unit.why_kept.empty();
    Json line;
    put_name(line, "entry", unit.unit);
    line["publish"] = !is_kept;
    line["files"] = unit.files;
    line["bytes"] = unit.bytes;
    if (is_kept) line["why"] = unit.why_kept;
    plan.add(std::move(line));
    total.entries += unit.files > 0 ? 1 : 0;
    total.files += unit.files;
    total.bytes += unit.bytes;
  }
  Json answer = {
      {"ok", true}, {"entries", total.entries}, {"files", total.files}, {"bytes", total.bytes}};
  plan.put_into(answer);
  request.session->answer(answer);
}

void plan_discarding(const ControlRequest& request, const Job& job) {
  const LayerContent content = list_layer(job.overlay, request.mount.entries);
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  PlanRows plan;
  for (const LayerUnit& unit : content.units) {
    Json line;
    put_name(line, "entry", unit.unit);
    line["files"] = unit.files;
    line["bytes"] = unit.bytes;
    plan.add(std::move(line));
    files += unit.files;
    bytes += unit.bytes;
  }
  Json answer = {{"ok", true},
                 {"files", files},
                 {"bytes", bytes},
                 {"removed", content.removed},
                 {"open_files", job.use.open_files.load()}};
  plan.put_into(answer);
  request.session->answer(answer);
}

// Whether the path is valid as a path in the store: not empty, at most kMostPathBytes long, without "/" at either end,
// and without "//" or a component "." or "..".
bool is_store_path(std::string_view path) {
  if (path.size() > kMostPathBytes || !PathPattern::is_valid(path)) return false;
  while (!path.empty()) {
    const std::string_view part = take_component(path);
    if (part == "." || part == "..") return false;
  }
  return true;
}

}  // namespace

void list_jobs(const ControlRequest& request) {
  const auto states = request.mount.jobs.states();
  request.session->answer_line(request.flag("rows") ? list_rows(states)
                                                    : list_objects(states, request));
}

void show_job(const ControlRequest& request) {
  const auto job = require_own_job(request);
  if (job == nullptr) return;
  const Json described = describe_job(*job, request.mount.options.layers_dir);
  request.session->answer({{"ok", true}, {"job", described}});
}

// Summarizes the contents of the job's layer. Calls stat(2) for each file.
void show_layer(const ControlRequest& request) {
  const auto job = require_own_job(request);
  if (job == nullptr) return;
  const LayerContent content = list_layer(job->overlay, request.mount.entries);
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  for (const LayerUnit& unit : content.units) {
    files += unit.files;
    bytes += unit.bytes;
  }
  request.session->answer({{"ok", true},
                           {"entries", content.units.size()},
                           {"files", files},
                           {"bytes", bytes},
                           {"removed", content.removed}});
}

void start_job(const ControlRequest& request) {
  const std::string named = request.text("job");
  if (!require_valid(named, request)) return;
  const auto uid = uid_to_start_for(request);
  if (!uid && request.fields.contains("uid")) {
    return request.session->refuse("the uid must be a number below 2^32 - 1", kExitUsage);
  }
  if (!require_startable(request, named, uid)) return;
  JobClaim claim = claim_to_start(request, named, uid);
  const auto known = request.mount.jobs.find(std::string(claim.job.view()));
  const bool was_active = known != nullptr && known->life.is_active();
  if (was_active && request.flag("shared_uids") && !known->views.shares_uids()) {
    return request.session->refuse(
        fmt::format("job '{}' has begun without --shared-uids", known->id), kExitFailed);
  }
  JobRights& rights = request.mount.rights;
  const bool shared_uids = request.flag("shared_uids");
  UserAccount& account = request.mount.limits.account(request.caller.uid);
  const auto begun = uid ? rights.begin_for(*uid, claim, account, shared_uids)
                         : rights.ensure_active(claim, account, shared_uids);
  if (!begun) return refuse_job(request, named, begun.error());
  Job& job = **begun;
  (void)job.views.enter(
      request.caller);  // root does not become the owner; the first other user does
  job.record_owner();
  if (!require_owner(request, job)) return;
  if (request.flag("run")) ++job.use.runs;
  Json answer = {{"ok", true}, {"job", describe_job(job, request.mount.options.layers_dir)}};
  if (const std::string why = rights.reason(claim); !why.empty()) {
    answer["redirected"] = why;
  }
  request.session->answer(answer);
}

// Fetches the entries that the last job of the same name used, and starts to record the entries that this job uses.
void prefetch(const ControlRequest& request) {
  const auto job = require_job(request);
  if (job == nullptr) return;
  const std::string name = request.text("name");
  if (!is_job_name(name)) {
    return request.session->refuse(
        "the name must have 1 to 255 bytes of printable UTF-8; nothing is prefetched", kExitUsage);
  }
  RemoteEntries* const remote = request.mount.remote.get();
  if (remote == nullptr) {
    return request.session->refuse("this mount has no remote tier; nothing is prefetched",
                                   kExitFailed);
  }
  const auto attempt = [&job] { return std::pair(job->life.cycle(), job->life.started()); };
  const auto begun = attempt();
  job->filter.record_uses();
  const auto pack = std::make_shared<const RemoteEntries::Pack>(
      remote->fetch_pack(job->views.owner().value_or(request.caller.uid), name,
                         [&mount = request.mount] { return !mount.is_closing(); }));
  {
    const MutexLock ending(job->end_mutex);
    if (job->life.is_active() && attempt() == begun) (void)job->pack.exchange(pack);
  }
  request.session->answer(
      {{"ok", true}, {"added", pack->added}, {"present", pack->present}, {"why", pack->why}});
}

void end_job(const ControlRequest& request) {
  const auto job = require_job(request);
  if (job == nullptr) return;
  const std::string wanted = request.text("outcome");
  if (wanted != "success" && wanted != "failure") {
    return request.session->refuse("the outcome must be success or failure", kExitUsage);
  }
  const std::string cycle = request.text("cycle");
  if (!cycle.empty() && cycle != job->life.cycle()) {
    return request.session->refuse(
        fmt::format("job '{}' is at attempt {} by now, not at {}; it goes on", job->id,
                    job->life.cycle(), cycle),
        kExitFailed);
  }
  if (request.flag("run")) {
    if (wanted == "failure") job->use.a_run_failed = true;
    if (--job->use.runs > 0) {
      Json answer = describe(PublishReport());
      answer["ended"] = false;
      return request.session->answer(answer);
    }
  }
  const bool failed = wanted == "failure" || job->use.a_run_failed;
  const auto report = request.mount.publishing.end_job(
      *job, failed ? Outcome::kFailure : Outcome::kSuccess, request.progress("publishing entries"));
  if (job->life.is_active() && request.mount.is_closing()) {
    return request.session->refuse(
        fmt::format("the mount is being closed; job '{}' has not ended", job->id),
        kExitUnavailable);
  }
  Json answer = describe(report);
  answer["ended"] = true;
  answer["outcome"] = to_string(job->life.outcome());
  const JobPublishing::Total total = job->publishing.total();
  answer["total"] = {{"entries", total.entries}, {"files", total.files}, {"bytes", total.bytes}};
  request.session->answer(answer);
}

void publish_job(const ControlRequest& request) {
  const auto job = require_job(request);
  if (job == nullptr) return;
  if (request.flag("dry_run")) return plan_publishing(request, *job);
  request.session->answer(describe(request.mount.publishing.publish_job(
      *job, request.progress("publishing entries"), request.wanted())));
}

void discard_job(const ControlRequest& request) {
  const auto job = require_job(request);
  if (job == nullptr) return;
  if (request.flag("dry_run")) return plan_discarding(request, *job);
  const std::uint64_t files = request.mount.publishing.discard_job(*job);
  request.session->answer({{"ok", true}, {"files", files}});
}

void wait_for_job(const ControlRequest& request) {
  const auto job = require_known_job(request);
  if (job == nullptr) return;
  const std::string id = job->id;
  const std::weak_ptr<ControlSession> waiting = request.session;
  job->life.on_end(waiting, [id, waiting](std::optional<Outcome> outcome) {
    const auto session = waiting.lock();
    if (session == nullptr) return;  // the client has closed the file
    if (outcome) return session->answer({{"ok", true}, {"outcome", to_string(*outcome)}});
    session->refuse(fmt::format("the mount is being closed; job '{}' has not ended", id),
                    kExitUnavailable);
  });
  // Check this after on_end(): Mount::fail_waits() refuses only the waits that it finds, and may have run before
  // on_end().
  if (request.mount.is_closing()) job->life.end_waits().give();
}

void explain(const ControlRequest& request) {
  const std::string path = get_name(request.fields, "path");
  const std::string id = request.text("job");
  if (!is_store_path(path)) {
    return request.session->refuse(fmt::format("'{}' is no path of this mount", path), kExitUsage);
  }
  if (!require_valid(id, request)) return;
  auto job = find_job(request, id);
  if (job != nullptr && !job->life.is_active()) job = nullptr;
  const Inspector& inspector = *request.inspector;
  if (job != nullptr && !job->views.may_inspect(request.caller.uid)) {
    return refuse_non_owner(request, *job, "see it");
  }
  if (!inspector.may_look_up(request.mount, job.get(), path)) {
    return request.session->refuse(
        fmt::format("uid {} may not look up '{}'", inspector.uid(), path), kExitFailed);
  }
  const auto explained = explain_path(request.mount, job.get(), path, inspector, request.wanted());
  if (explained) request.session->answer(*explained);
}

}  // namespace cacheshim
