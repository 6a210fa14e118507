// SPDX-License-Identifier: Apache-2.0
#include "store/layer/layer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>

#include <nlohmann/json.hpp>

#include "common/job_id.h"
#include "store/sys/json_text.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr mode_t kLayerMode = 0700;
constexpr const char* kLayerLock = "owner.lock";
// The maximum number of layers of the same job, cycle and node.
constexpr unsigned kMostLayersPerCycle = 64;
constexpr int kMostLayerAttempts = 16;

Result<UniqueFd> open_dir(int parent, const std::string& name) {
  return sys::open_beneath(parent, name, O_RDONLY | O_DIRECTORY);
}

// Returns EPERM if a user other than root, the daemon's user and the owner of `layers` owns the
// directory or can change it. Requires: `layers` itself has been checked.
Status check_own_dir(int layers, const std::string& path) {
  CACHESHIM_TRY(top, sys::stat_fd(layers));
  CACHESHIM_TRY(directory, open_dir(layers, path));
  CACHESHIM_TRY(st, sys::stat_fd(directory.get()));
  return sys::is_private_dir(st, top.st_uid) ? Status() : Errno(EPERM);
}

// Makes the directory `path` of a layer, and the directory of its job. Tries again if the job's directory
// disappears meanwhile: a thread that has removed the job's last layer also removes the job's directory, if
// it is still empty.
Status ensure_layer_dir(int layers, const std::string& job, const std::string& path) {
  for (int attempt = 0; attempt < kMostLayerAttempts; ++attempt) {
    CACHESHIM_CHECK(sys::ensure_dir_at(layers, job, kLayerMode));
    Status made = check_own_dir(layers, job);
    if (made) made = sys::ensure_dir_at(layers, path, kLayerMode);
    if (!made.failed_with(ENOENT)) return made;
  }
  return Errno(ENOENT);
}

// Whether another process or thread holds the layer, for example in order to remove it.
bool is_held(int layers, const std::string& path) {
  const auto lock = sys::open_beneath(layers, join_path(path, kLayerLock), O_RDWR);
  return lock && sys::lock_file(lock->get(), LOCK_EX | LOCK_NB).failed_with(EWOULDBLOCK);
}

Outcome parse_outcome(const std::string& text) {
  if (text == "success") return Outcome::kSuccess;
  if (text == "failure") return Outcome::kFailure;
  return Outcome::kNone;
}

template <class Function>
void for_each_layer(int layers, Function&& function) {
  const auto jobs = sys::list_dir(layers);
  if (!jobs) return;
  for (const sys::DirEntry& job : *jobs) {
    const auto directory = open_dir(layers, job.name);
    if (!directory) continue;
    const auto names = sys::list_dir(directory->get());
    if (!names) continue;
    for (const sys::DirEntry& name : *names) function(job.name, name.name);
    (void)sys::unlink_at(layers, job.name, AT_REMOVEDIR);  // fails if the job still has layers
  }
}

// Ignores EINVAL, which some file systems return because they cannot sync directories.
Status sync_dir(int directory) {
  const Status synced = sys::sync_file(directory);
  return synced.failed_with(EINVAL) ? Status() : synced;
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNone:
      return "none";
    case Outcome::kSuccess:
      return "success";
    case Outcome::kFailure:
      return "failure";
  }
  return "";
}

std::string to_json(const LayerRecord& record) {
  nlohmann::ordered_json json;
  json["job"] = record.job;
  json["cycle"] = record.cycle;
  json["node"] = record.node;
  json["uid"] = record.uid ? nlohmann::ordered_json(*record.uid) : nlohmann::ordered_json();
  json["shared_uids"] = record.shared_uids;
  json["shared_by_root"] = record.shared_by_root;
  json["vouched"] = record.vouched;
  json["refused"] = record.refused;
  if (record.publish) json["publish"] = to_string(*record.publish);
  json["state"] = record.active ? "active" : "ended";
  json["outcome"] = to_string(record.outcome);
  json["started"] = record.started;
  json["ended"] = record.ended;
  return dump_json(json, 2) + "\n";
}

Result<LayerRecord> parse_layer_record(std::string_view text) {
  const auto json = parse_json(text);
  if (!json.is_object()) return Errno(EINVAL);
  LayerRecord record;
  try {
    record.job = json.value("job", "");
    record.cycle = json.value("cycle", "0");
    record.node = json.value("node", "");
    if (json.contains("uid") && !json["uid"].is_null()) {
      record.uid = static_cast<unsigned>(get_integer(json["uid"], 0, UINT32_MAX));
    }
    record.shared_uids = json.value("shared_uids", false);
    record.shared_by_root = json.value("shared_by_root", false);
    record.vouched = json.value("vouched", false);
    record.refused = json.value("refused", "");
    record.publish = parse_publish_policy(json.value("publish", ""));
    record.active = json.value("state", "active") == "active";
    record.outcome = parse_outcome(json.value("outcome", "none"));
    record.started = find_integer(json, "started", 0, INT64_MAX, 0);
    record.ended = find_integer(json, "ended", 0, INT64_MAX, 0);
  } catch (const nlohmann::json::exception&) {
    return Errno(EINVAL);
  }
  return record;
}

Result<Layer> Layer::take_existing(int layers, const std::string& job, const std::string& name) {
  const std::string path = join_path(job, name);
  CACHESHIM_CHECK(check_own_dir(layers, job));
  CACHESHIM_CHECK(check_own_dir(layers, path));
  CACHESHIM_TRY(directory, open_dir(layers, path));
  CACHESHIM_TRY(lock, sys::open_beneath(directory.get(), kLayerLock, O_RDWR | O_CREAT, 0600));
  CACHESHIM_CHECK(sys::lock_file(lock.get(), LOCK_EX | LOCK_NB));
  Layer layer(std::move(directory), std::move(lock), path);
  CACHESHIM_TRY(text, sys::read_file(layer.directory_.get(), kLayerRecordFile));
  CACHESHIM_TRY(record, parse_layer_record(text));
  layer.record_ = std::move(record);
  CACHESHIM_CHECK(layer.prepare(layer.record_));
  return layer;
}

// Whether a job with the record `wanted` may take this layer. A layer has no record if it is new, or if its creator
// died or the machine lost power before the record was written. A layer without a record may be taken only if it has no
// upper directory. A layer that only root has used goes to the first other user. Any user may take a shared layer.
bool Layer::may_be_taken(const LayerRecord& wanted) const {
  const auto text = sys::read_file(directory_.get(), kLayerRecordFile);
  if (!text) {
    return text.failed_with(ENOENT) &&
           sys::open_beneath(directory_.get(), "upper", O_PATH).failed_with(ENOENT);
  }
  const auto old = parse_layer_record(*text);
  if (!old) return false;
  if (!old->uid || old->shared_uids) return true;
  return wanted.uid == old->uid;
}

// Syncs the directories above the record, because syncing the record does not make the names of
// these directories durable.
Status Layer::sync_names(int layers) const {
  for (const std::string& path : {path_, std::string(parent_path(path_)), std::string()}) {
    CACHESHIM_TRY(directory, open_dir(layers, path));
    CACHESHIM_CHECK(sync_dir(directory.get()));
  }
  return {};
}

Result<Layer> Layer::take(int layers, const LayerRecord& wanted) {
  for (unsigned number = 1; number <= kMostLayersPerCycle; ++number) {
    std::string path = fmt::format("{}/{}@{}", wanted.job, wanted.cycle, wanted.node);
    if (number > 1) path += fmt::format(".{}", number);
    CACHESHIM_CHECK(ensure_layer_dir(layers, wanted.job, path));
    CACHESHIM_CHECK(check_own_dir(layers, path));
    CACHESHIM_TRY(directory, open_dir(layers, path));
    CACHESHIM_TRY(lock, sys::open_beneath(directory.get(), kLayerLock, O_RDWR | O_CREAT, 0600));
    const Status locked = sys::lock_file(lock.get(), LOCK_EX | LOCK_NB);
    if (locked.failed_with(EWOULDBLOCK)) continue;
    if (!locked) return locked.error();
    Layer layer(std::move(directory), std::move(lock), path);
    if (!layer.may_be_taken(wanted)) continue;
    CACHESHIM_CHECK(layer.prepare(wanted));
    CACHESHIM_CHECK(layer.sync_names(layers));
    return layer;
  }
  return Errno(EUSERS);
}

Status Layer::prepare(const LayerRecord& wanted) {
  CACHESHIM_CHECK(sys::ensure_dir_at(directory_.get(), "upper", 0755));
  CACHESHIM_CHECK(sys::ensure_dir_at(directory_.get(), "work", kLayerMode));
  record_ = wanted;
  if (const auto text = sys::read_file(directory_.get(), kLayerRecordFile)) {
    const auto old = parse_layer_record(*text);
    if (old && old->active) record_ = *old;
    if (!record_.uid) record_.uid = wanted.uid;
    // The job's new publish policy applies. But the layer still contains files that were written under the previous
    // record. So a refusal in that record stays in force, and the layer is vouched only if both records say so.
    record_.publish = wanted.publish;
    record_.vouched = wanted.vouched && old && old->vouched;
    record_.refused = old && !old->refused.empty() ? old->refused : wanted.refused;
  }
  return save(record_);
}

Status Layer::save(const LayerRecord& record) {
  CACHESHIM_CHECK(sys::replace_file(directory_.get(), kLayerRecordFile, to_json(record), 0600));
  CACHESHIM_CHECK(sync_dir(directory_.get()));
  record_ = record;
  return {};
}

Status Layer::append(const char* file, std::string_view line, std::size_t most_bytes) const {
  CACHESHIM_TRY(fd, sys::open_beneath(directory_.get(), file, O_WRONLY | O_APPEND | O_CREAT, 0600));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  if (static_cast<std::size_t>(st.st_size) + line.size() > most_bytes) return Errno(EFBIG);
  return sys::write_all(fd.get(), line);
}

Status Layer::replace(const char* file, std::string_view text) const {
  return sys::replace_file(directory_.get(), file, text, 0600);
}

Result<std::string> Layer::read(const char* file) const {
  return sys::read_file(directory_.get(), file);
}

Result<UniqueFd> Layer::open_upper() const { return open_dir(directory_.get(), "upper"); }

Result<UniqueFd> Layer::open_work() const { return open_dir(directory_.get(), "work"); }

Status Layer::end(int layers, Outcome outcome, bool keep) {
  LayerRecord ended = record_;
  ended.active = false;
  ended.outcome = outcome;
  ended.ended = std::time(nullptr);
  const Status saved = save(ended);
  if (keep) CACHESHIM_CHECK(saved);
  timespec now{};
  (void)::clock_gettime(CLOCK_REALTIME, &now);  // cannot fail for this clock
  const std::string kept =
      fmt::format("{}{}{}.{:09}", path_, kEndedLayerMark, now.tv_sec, now.tv_nsec);
  CACHESHIM_CHECK(sys::rename_at(layers, path_, layers, kept));
  path_ = kept;
  // sweep_ended_layers() removes a layer without a record, even if the layer has just ended.
  return keep ? Status() : sys::unlink_at(directory_.get(), kLayerRecordFile);
}

// Removes the lock file last, because is_held() checks it.
Status Layer::remove(int layers, const IsWanted& is_wanted) {
  for (const char* contents : {"upper", "work"}) {
    CACHESHIM_CHECK(sys::remove_tree(directory_.get(), contents, is_wanted));
  }
  CACHESHIM_CHECK(sys::remove_tree(layers, path_, is_wanted));
  // Fails if the job has other layers, which must stay.
  (void)sys::unlink_at(layers, std::string(parent_path(path_)), AT_REMOVEDIR);
  return {};
}

std::vector<Layer> take_orphans(int layers, const std::string& node) {
  std::vector<Layer> orphans;
  for_each_layer(layers, [&](const std::string& job, const std::string& name) {
    if (name.find(kEndedLayerMark) != std::string::npos) return;
    auto layer = Layer::take_existing(layers, job, name);
    if (!layer || layer->record().node != node || !layer->record().active) return;
    orphans.push_back(*std::move(layer));
  });
  return orphans;
}

unsigned end_abandoned_layers(int layers, const std::string& node, std::time_t started_before,
                              std::time_t keep_seconds) {
  unsigned count = 0;
  const std::time_t oldest = std::time(nullptr) - keep_seconds;
  for_each_layer(layers, [&](const std::string& job, const std::string& name) {
    if (name.find(kEndedLayerMark) != std::string::npos) return;
    const auto text = sys::read_file(layers, join_path(join_path(job, name), kLayerRecordFile));
    const auto record = text ? parse_layer_record(*text) : Result<LayerRecord>(text.error());
    if (!record) return;
    const bool is_own = record->node == node;
    if (!is_own && is_own_job(job)) return;
    if (record->started >= (is_own ? started_before : std::min(started_before, oldest))) return;
    auto layer = Layer::take_existing(layers, job, name);
    const Outcome outcome = record->active ? Outcome::kNone : record->outcome;
    if (layer && layer->end(layers, outcome, /*keep=*/true)) ++count;
  });
  return count;
}

void sweep_ended_layers(int layers, std::time_t keep_seconds, const IsWanted& is_wanted) {
  const std::time_t oldest = std::time(nullptr) - keep_seconds;
  for_each_layer(layers, [&](const std::string& job, const std::string& name) {
    if (name.find(kEndedLayerMark) == std::string::npos) return;
    const std::string path = join_path(job, name);
    const auto text = sys::read_file(layers, join_path(path, kLayerRecordFile));
    const auto record = text ? parse_layer_record(*text) : Result<LayerRecord>(text.error());
    if (record && record->ended > oldest) return;
    if (!is_still_wanted(is_wanted) || is_held(layers, path)) return;
    (void)sys::remove_tree(layers, path, is_wanted);  // if this fails, the next sweep tries again
  });
}

}  // namespace cacheshim
