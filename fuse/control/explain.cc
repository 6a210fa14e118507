// SPDX-License-Identifier: Apache-2.0
#include "fuse/control/explain.h"

#include <fcntl.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "fuse/control/inspector.h"
#include "fuse/mount.h"
#include "store/sys/digest.h"
#include "store/sys/json_text.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

using Json = nlohmann::ordered_json;

struct History {
  std::optional<AuditRecord> published;  // the last publish that included the path
  std::string recorded_digest;
  std::optional<AuditRecord> gone;  // the last removal after `published`
};

// Returns the records of the last publish that included the path, and of a later removal of the unit, if any. If the
// path is the unit itself, every publish of the unit counts.
History history_of(const AuditLog& audit, const std::string& path, const std::string& unit) {
  History history;
  const Status read = audit.read_naming(base_name(unit), [&](AuditRecord record) {
    if (record.unit != unit) return;
    if (record.event != AuditRecord::Event::kPublish) {
      if (!history.gone || history.gone->time < record.time) history.gone = std::move(record);
      return;
    }
    std::string digest;
    bool holds = path == unit;
    for (const AuditFile& file : record.files) {
      if (file.path != path) continue;
      holds = true;
      digest = file.digest;
    }
    if (!holds || (history.published && history.published->time > record.time)) return;
    history.recorded_digest = std::move(digest);
    history.published = std::move(record);
  });
  if (!read) return history;  // the report then lacks the history
  if (history.gone && history.published && history.gone->time < history.published->time) {
    history.gone.reset();
  }
  return history;
}

// Returns the reason why a path of the layer has not been published.
std::string why_not_published(const Mount& mount, const Job& job,
                              const std::optional<EntryRef>& ref, const std::string& path) {
  const std::string_view never = row_of(mount.entries.class_of(path)).never_published;
  if (!never.empty()) return std::string(never);
  const auto own = [&] {
    const ReaderLock lock(job.overlay.mutex());
    return job.overlay.find(path);
  }();
  if (own && mount.publishing.publisher().is_lock_by_use(path, own->st)) {
    return "a lock file is never published";
  }
  if (const std::string why = job.policy.why_refused(); !why.empty()) {
    return "the job may not publish: " + why;
  }
  if (job.policy.effective() == PublishPolicy::kNever)
    return "the job publishes nothing: its policy is never";
  const std::string kept = job.publishing.why_unpublished(ref ? ref->unit() : path);
  if (!kept.empty()) return kept;
  if (!ref) return "it belongs to no entry of a known cache: published if the job succeeds";
  const std::string reason = mount.publishing.publisher().why_not_due(job.overlay, *ref, false);
  if (!reason.empty()) return reason;
  if (job.policy.effective() == PublishPolicy::kEnd)
    return "complete: published if the job succeeds";
  return "complete: published as soon as the daemon detects this, at the latest at the job's end";
}

void add_history(Json& json, const History& history, bool with_digest) {
  if (history.published) {
    const AuditRecord& record = *history.published;
    Json published = {
        {"time", record.time}, {"job", record.job}, {"cycle", record.cycle}, {"node", record.node}};
    published["uid"] = record.uid ? Json(*record.uid) : Json();
    if (with_digest && !history.recorded_digest.empty()) {
      published["xxh3"] = history.recorded_digest;
    }
    json["published"] = std::move(published);
  }
  if (history.gone) {
    json["gone"] = {{"time", history.gone->time},
                    {"event", to_string(history.gone->event)},
                    {"reason", history.gone->reason}};
  }
}

Status add_object(Json& json, const Opened& opened, const struct stat& st, bool with_digest,
                  const IsWanted& is_wanted) {
  json["kind"] = S_ISDIR(st.st_mode) ? "directory" : S_ISLNK(st.st_mode) ? "symlink" : "file";
  if (!S_ISREG(st.st_mode)) return {};
  json["size"] = st.st_size;
  if (!with_digest) return {};
  // Reading the file must not count as a use for eviction.
  auto readable = sys::reopen(opened.fd.get(), O_RDONLY | O_NOATIME);
  if (readable.failed_with(EPERM)) readable = sys::reopen(opened.fd.get(), O_RDONLY);
  const auto digest = readable ? digest_of(readable->get(), is_wanted) : readable.error();
  if (digest.failed_with(ECANCELED)) return digest.error();
  if (digest) json["xxh3"] = *digest;
  return {};
}

Result<Opened> open_seen(const Mount& mount, const Job* job, const std::string& path) {
  if (job != nullptr) {
    const ReaderLock lock(job->overlay.mutex());
    return job->overlay.open(path, O_PATH);
  }
  CACHESHIM_TRY(fd, sys::open_beneath(mount.store.base(), path, O_PATH | O_NOFOLLOW));
  return Opened{std::move(fd), false};
}

void add_hidden(Json& json, const Mount& mount, const Job* job, const std::string& path) {
  if (job == nullptr) return;
  const ReaderLock lock(job->overlay.mutex());
  const std::string why = job->overlay.why_hidden(path);
  if (why.empty() || !sys::open_beneath(mount.store.base(), path, O_PATH | O_NOFOLLOW)) return;
  json["hidden"] = why;
}

// Adds the record of the jobs that have rejected the base's entry.
void add_rejections(Json& json, const Mount& mount, const std::string& unit) {
  const auto summary = mount.publishing.publisher().rejected().find(unit);
  if (!summary) return;
  json["rejected"] = describe(*summary);
}

// Adds the builders and waiters of this path. If the path is the entry itself, adds the builders and waiters of all
// names of the entry.
void add_flights(Json& json, Mount& mount, const std::string& path, const std::string& unit,
                 uid_t uid) {
  if (mount.single_flight.flights() == nullptr) return;
  Json all = Json::array();
  for (const FlightDescription& flight : mount.single_flight.flights()->describe()) {
    const auto ref = mount.entries.find(flight.path);
    if (flight.path != path && !(path == unit && ref && ref->unit() == unit)) continue;
    if (!flight.job.empty() && !may_see_flight(mount, flight, uid)) continue;
    Json one;
    put_name(one, "path", flight.path);
    one.update({{"job", flight.job},
                {"leader", flight.builder},
                {"leader_job", flight.builder_job},
                {"remote", flight.is_sought},
                {"waiting", flight.waiting},
                {"waiting_jobs", flight.waiting_jobs}});
    all.push_back(std::move(one));
  }
  if (!all.empty()) json["flights"] = std::move(all);
}

}  // namespace

Json describe(const RejectedEntries::Summary& summary) {
  Json json;
  json["times"] = summary.times;
  json["equal"] = summary.equal;
  json["jobs"] = summary.jobs;
  json["users"] = summary.users;
  json["last"] = summary.last;
  json["replaced"] = summary.replaced != 0 ? Json(summary.replaced) : Json();
  return json;
}

Result<Json> explain_path(Mount& mount, Job* job, const std::string& path,
                          const Inspector& inspector, const IsWanted& is_wanted) {
  const EntryMap& entries = mount.entries;
  const auto ref = entries.find(path);
  const std::string unit = ref ? ref->unit() : path;
  const Profile* profile = entries.find_profile(path.substr(0, path.find('/')));
  const auto opened = open_seen(mount, job, path);
  Json json;
  json["ok"] = true;
  put_name(json, "path", path);
  json["job"] = job != nullptr ? Json(job->id) : Json();
  json["from"] = !opened ? "nowhere" : opened->in_upper ? "layer" : "base";
  const auto st = opened ? sys::stat_fd(opened->fd.get()) : opened.error();
  const bool may_read = st && inspector.may_read(mount, *st, opened->in_upper);
  if (st) CACHESHIM_CHECK(add_object(json, *opened, *st, may_read, is_wanted));
  json["profile"] = profile != nullptr ? Json(profile->name) : Json();
  if (profile != nullptr) {
    json["evidence"] = to_string(profile->evidence);
    json["class"] = to_string(entries.class_of(path));
  }
  json["entry"] = Json();
  if (ref) put_name(json, "entry", unit);
  const History history = history_of(mount.store.audit(), path, unit);
  const bool is_publisher = history.published && history.published->uid == inspector.uid();
  add_history(json, history, may_read || is_publisher || inspector.is_unrestricted());
  const bool is_own_directory = opened && opened->in_upper &&
                                json.value("kind", "") == "directory" &&
                                !(ref && ref->is_entry_directory());
  if (opened && opened->in_upper && !is_own_directory) {
    json["not_published"] = why_not_published(mount, *job, ref, path);
  }
  add_rejections(json, mount, unit);
  add_hidden(json, mount, job, path);
  add_flights(json, mount, path, unit, inspector.uid());
  return json;
}

}  // namespace cacheshim
