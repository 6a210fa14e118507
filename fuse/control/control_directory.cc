// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/control_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cacheshim_build.h"
#include "common/counters.h"
#include "common/names.h"
#include "fuse/control/control_requests.h"
#include "fuse/control/explain.h"
#include "fuse/control/inspector.h"
#include "fuse/control/metrics_text.h"
#include "store/profiles/profile_json.h"
#include "store/sys/json_text.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMostRejectedShown = 5;

// A path of 4,095 bytes takes 24 KiB if every byte is escaped.
constexpr JsonLimits kRequestLimits{std::size_t{64} << 10, 8};

using Json = nlohmann::ordered_json;

std::string stats_json(Mount& mount) {
  const CounterValues values = counters_of(mount);
  Json json;
  for (std::size_t i = 0; i < values.size(); ++i) {
    json[std::string(kCounterRows[i].name)] = values[i];
  }
  return dump_json(json, 2) + "\n";
}

std::string flights_json(Mount& mount, uid_t uid) {
  Json all = Json::array();
  if (mount.single_flight.flights() != nullptr) {
    for (const FlightDescription& flight : mount.single_flight.flights()->describe()) {
      if (!may_see_flight(mount, flight, uid)) continue;
      Json one;
      put_name(one, "path", flight.path);
      one.update({{"job", flight.job}, {"leader", flight.builder}, {"waiting", flight.waiting}});
      all.push_back(std::move(one));
    }
  }
  return dump_json(all, 2) + "\n";
}

Json limits_json(const UserLimits& limits) {
  Json all = Json::array();
  const auto uses = limits.uses();
  for (std::size_t i = 0; i < uses.size(); ++i) {
    all.push_back({{"limit", kLimitRows[i].key},
                   {"most", uses[i].most},
                   {"capacity", uses[i].capacity},
                   {"used", uses[i].total},
                   {"highest", uses[i].highest},
                   {"refused", uses[i].refused}});
  }
  return all;
}

Json renames_json(const std::optional<sys::RenameSupport>& support) {
  return support ? Json(sys::to_string(*support)) : Json(nullptr);
}

Json remote_json(const RemoteEntries::State& state) {
  return {{"urls", state.urls},
          {"used", state.is_used},
          {"why", state.why},
          {"unused_since", state.is_used ? Json(nullptr) : Json(state.unused_since)},
          {"known", state.known},
          {"unsent", state.unsent}};
}

Json metrics_json(const MetricsListener& listener) {
  const std::string problem = listener.problem();
  return {{"listen", listener.address()},
          {"problem", problem.empty() ? Json(nullptr) : Json(problem)}};
}

std::string status_json(Mount& mount) {
  const MountOptions& options = mount.options;
  Json json;
  json["version"] = CACHESHIM_VERSION;
  json["store"] = options.store_dir;
  json["layers"] = options.layers_dir;
  json["mount"] = options.mount_point;
  json["run_dir"] = options.run_dir;
  json["pid"] = ::getpid();
  json["started"] = mount.started;
  json["publish"] = to_string(options.publish);
  json["publishers"] = mount.trust.text();
  json["watch"] = to_string(mount.timeouts.watch_mode());
  json["base_is_local"] = mount.is_base_local();
  json["renames"] = {{"base", renames_json(mount.base_renames)},
                     {"layers", renames_json(mount.layer_renames)}};
  json["passthrough"] = mount.io_modes.is_enabled();
  json["requests"] = mount.uses_io_uring() ? "io_uring" : "/dev/fuse";
  json["locks"] = mount.locks.state().is_local_only ? "this mount" : "file system";
  json["jobs_active"] = mount.jobs.active_count();
  json["excluded_builders"] = Json::array();
  if (const Flights* const flights = mount.single_flight.flights(); flights != nullptr) {
    for (const uid_t uid : flights->excluded_users()) json["excluded_builders"].push_back(uid);
  }
  const std::time_t full_since = mount.publishing.room().full_since();
  json["store_full_since"] = full_since == 0 ? Json(nullptr) : Json(full_since);
  json["remote"] = mount.remote ? remote_json(mount.remote->state()) : Json(nullptr);
  json["metrics"] = mount.metrics ? metrics_json(*mount.metrics) : Json(nullptr);
  json["limits"] = limits_json(mount.limits);
  Json names = Json::array();
  for (const Profile& profile : mount.entries.profiles()) names.push_back(profile.name);
  json["profiles"] = std::move(names);
  json["rejected"] = Json::array();
  for (const auto& summary : mount.publishing.publisher().rejected().worst(kMostRejectedShown)) {
    Json entry;
    put_name(entry, "entry", summary.unit);
    entry.update(describe(summary));
    json["rejected"].push_back(std::move(entry));
  }
  return dump_json(json, 2) + "\n";
}

}  // namespace

// Appends `value` to `text` as a JSON string. Bytes that are not UTF-8 become U+FFFD.
void append_quoted(std::string_view value, std::string& text) {
  const bool is_plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) {
    ((text += '"') += value) += '"';
  } else {
    text += dump_json(Json(std::string(value)));
  }
}

// Does not escape job ids and cycles, because they contain no characters that JSON escapes.
void append_job(const JobTable::State& state, const std::string& layers_dir, bool with_layer,
                std::string& text) {
  Job& job = *state.job;
  const std::optional<uid_t> owner = job.views.owner();
  const ViewFilter::Counts direct = job.filter.counts();
  fmt::format_to(
      std::back_inserter(text),
      R"({{"job":"{}","cycle":"{}","state":"{}","outcome":"{}","uid":{},"shared_uids":{},)"
      R"("started":{},"open_files":{},"runs":{},"direct_opens":{},"direct_looks":{},)",
      job.id, job.life.cycle(), state.is_active ? "active" : "ended", to_string(state.outcome),
      owner ? fmt::to_string(*owner) : "null", job.views.shares_uids(), job.life.started(),
      job.use.open_files.load(), job.use.runs.load(), direct.opens, direct.lookups);
  const ReaderLock lock(job.overlay.mutex());
  text += R"("layer":)";
  if (job.layer && with_layer) {
    append_quoted(layers_dir + "/" + job.layer->path(), text);
  } else {
    text += "null";
  }
  fmt::format_to(std::back_inserter(text), R"(,"publish":"{}","refused":)",
                 to_string(job.policy.effective()));
  append_quoted(with_layer ? job.policy.why_refused() : "", text);
  const auto pack = job.pack.get();
  text += R"(,"prefetch":)";
  append_quoted(with_layer && pack != nullptr ? pack->name : "", text);
  text += '}';
}

Json describe_job(Job& job, const std::string& layers_dir) {
  std::string text;
  append_job({job.shared_from_this(), job.life.is_active(), job.life.outcome()}, layers_dir, true, text);
  return Json::parse(text);
}

Result<std::string> ControlDirectory::text_of_job(Job& job, const Caller& caller) {
  if (!job.views.may_inspect(caller.uid)) return Errno(EACCES);
  return dump_json(describe_job(job, mount_.options.layers_dir), 2) + "\n";
}

std::string ControlDirectory::text_of(const std::string& name, const Caller& caller) {
  if (name == "stats") return stats_json(mount_);
  if (name == "metrics") return metrics_of(mount_);
  if (name == "status") return status_json(mount_);
  if (name == "flights") return flights_json(mount_, caller.uid);
  if (name == kRoutesFile) return mount_.options.routes;
  if (name == "profiles") return profiles_to_json(mount_.entries.profiles());
  return CACHESHIM_VERSION "\n";
}

Status ControlDirectory::submit(const std::shared_ptr<ControlSession>& session,
                                const Caller& caller, std::string_view request) {
  const auto json = parse_json(request, kRequestLimits);
  if (!json.is_object() || !json.contains("op") || !json["op"].is_string()) return Errno(EINVAL);
  CACHESHIM_TRY(charge, mount_.charge(caller.uid, Limit::kRequests));
  CACHESHIM_CHECK(session->begin(std::move(charge)));
  run_control_request(mount_, caller, json, session);
  return {};
}

}  // namespace cacheshim
