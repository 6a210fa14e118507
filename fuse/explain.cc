// SPDX-License-Identifier: Apache-2.0
#include "fuse/explain.h"

#include <fcntl.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "fuse/filesystem.h"
#include "store/digest.h"
#include "store/sys.h"

namespace cacheshim {
namespace {

using Json = nlohmann::ordered_json;

struct History {
  std::optional<AuditRecord> published;  // the one that brought the path, or else its unit
  std::string recorded_digest;
  std::optional<AuditRecord> gone;  // later than that
};

// What the records say of a path, or of the whole unit where the path is its folder.
History history_of(const AuditLog& audit, const std::string& path, const std::string& unit) {
  History history;
  const Status read = audit.read([&](AuditRecord record) {
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
  if (!read) return history;  // said by what is missing
  if (history.gone && history.published && history.gone->time < history.published->time) {
    history.gone.reset();
  }
  return history;
}

std::string rule_text(const EntryRule& rule) {
  std::vector<std::string> patterns = rule.complete;
  patterns.insert(patterns.end(), rule.complete_single.begin(), rule.complete_single.end());
  if (patterns.empty()) return "all of its files, renamed into place";
  return fmt::format("a file named {}{}", fmt::join(patterns, " or "),
                     rule.renamed ? ", renamed into place" : "");
}

std::string why_incomplete(const EntryRef& ref, bool is_complete) {
  if (!ref.profile->may_publish_early()) {
    return "the profile is a guess: published at the job's success";
  }
  if (!ref.rule->says_when_complete()) {
    return "nothing tells when its entry is complete: published at the job's success";
  }
  if (is_complete) return "";
  return fmt::format("its entry is not complete: what completes it is {}", rule_text(*ref.rule));
}

// For a path that the layer has.
std::string why_not_published(const Filesystem& filesystem, const Job& job,
                              const std::optional<EntryRef>& ref, const std::string& path) {
  const NameClass name_class = filesystem.entries().class_of(path);
  if (name_class == NameClass::kScratch) return "a temporary name is never published";
  if (name_class == NameClass::kBaton) return "a baton is never published";
  if (name_class == NameClass::kLock) return "a lock file is never published";
  if (job.policy() == PublishPolicy::kNever)
    return "the job publishes nothing: its policy is never";
  const std::string kept = job.why_kept(ref ? ref->unit() : path);
  if (!kept.empty()) return kept;
  if (!ref) return "it belongs to no entry of a known cache: published at the job's success";
  const std::shared_lock lock(job.overlay.mutex());
  const bool is_complete =
      job.overlay.has_layer() && filesystem.publisher().is_complete(job.overlay, *ref, false);
  const std::string reason = why_incomplete(*ref, is_complete);
  if (!reason.empty()) return reason;
  if (job.policy() == PublishPolicy::kEnd) return "complete: published at the job's success";
  return "complete: published as soon as that is seen, at the latest at the job's end";
}

void add_history(Json& json, const History& history) {
  if (history.published) {
    const AuditRecord& record = *history.published;
    Json published = {
        {"time", record.time}, {"job", record.job}, {"cycle", record.cycle}, {"node", record.node}};
    published["uid"] = record.uid ? Json(*record.uid) : Json();
    if (!history.recorded_digest.empty()) published["xxh3"] = history.recorded_digest;
    json["published"] = std::move(published);
  }
  if (history.gone) {
    json["gone"] = {{"time", history.gone->time},
                    {"event", to_string(history.gone->event)},
                    {"reason", history.gone->reason}};
  }
}

void add_object(Json& json, const Opened& opened) {
  const auto st = sys::stat_fd(opened.fd.get());
  if (!st) return;
  json["kind"] = S_ISDIR(st->st_mode) ? "folder" : S_ISLNK(st->st_mode) ? "symlink" : "file";
  if (!S_ISREG(st->st_mode)) return;
  json["size"] = st->st_size;
  auto readable = sys::reopen(opened.fd.get(), O_RDONLY | O_NOATIME);  // no use, to eviction
  if (readable.failed_with(EPERM)) readable = sys::reopen(opened.fd.get(), O_RDONLY);
  const auto digest = readable ? digest_of(readable->get()) : readable.error();
  if (digest) json["xxh3"] = *digest;
}

Result<Opened> open_seen(const Filesystem& filesystem, const Job* job, const std::string& path) {
  if (job != nullptr) {
    const std::shared_lock lock(job->overlay.mutex());
    return job->overlay.open(path, O_PATH);
  }
  CACHESHIM_TRY(fd, sys::open_beneath(filesystem.store().base(), path, O_PATH | O_NOFOLLOW));
  return Opened{std::move(fd), false};
}

void add_hidden(Json& json, const Filesystem& filesystem, const Job* job, const std::string& path) {
  if (job == nullptr) return;
  const std::shared_lock lock(job->overlay.mutex());
  const std::string why = job->overlay.why_hidden(path);
  if (why.empty() || !sys::open_beneath(filesystem.store().base(), path, O_PATH | O_NOFOLLOW))
    return;
  json["hidden"] = why;
}

}  // namespace

Json explain_path(Filesystem& filesystem, Job* job, const std::string& path) {
  const EntryMap& entries = filesystem.entries();
  const auto ref = entries.find(path);
  const std::string unit = ref ? ref->unit() : path;
  const Profile* profile = entries.find_profile(path.substr(0, path.find('/')));
  const auto opened = open_seen(filesystem, job, path);
  Json json;
  json["ok"] = true;
  json["path"] = path;
  json["job"] = job != nullptr ? Json(job->id) : Json();
  json["from"] = !opened ? "nowhere" : opened->in_upper ? "layer" : "base";
  if (opened) add_object(json, *opened);
  json["profile"] = profile != nullptr ? Json(profile->name) : Json();
  if (profile != nullptr) {
    json["evidence"] = to_string(profile->evidence);
    json["class"] = to_string(entries.class_of(path));
  }
  json["entry"] = ref ? Json(unit) : Json();
  add_history(json, history_of(filesystem.store().audit(), path, unit));
  const bool is_own_folder = opened && opened->in_upper && json.value("kind", "") == "folder" &&
                             !(ref && ref->is_entry_folder());
  if (opened && opened->in_upper && !is_own_folder) {
    json["not_published"] = why_not_published(filesystem, *job, ref, path);
  }
  add_hidden(json, filesystem, job, path);
  return json;
}

}  // namespace cacheshim
