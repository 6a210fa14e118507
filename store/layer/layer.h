// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"
#include "store/profiles/publish_policy.h"
#include "store/threads/slices.h"

// A job's layer on disk: LAYERS/<job>/<cycle>@<node>/{upper,work,meta.json,owner.lock}.
namespace cacheshim {

enum class Outcome { kNone, kSuccess, kFailure };
std::string_view to_string(Outcome outcome);

inline constexpr const char* kLayerRecordFile = "meta.json";  // in a layer's directory
// The name of an ended layer's directory contains this mark, followed by the time of the end.
inline constexpr std::string_view kEndedLayerMark = ".ended-";

// meta.json. Readers skip unknown fields, and use these defaults for missing ones, so that older
// and newer versions read each other's records.
struct LayerRecord {
  std::string job;
  std::string cycle;
  std::string node;
  std::optional<unsigned> uid;  // the first user of the layer other than root
  bool shared_uids = false;
  bool shared_by_root = false;  // root has admitted the other users
  // `vouched`: all users who have written to the layer may publish. `refused`: the reason why the
  // layer may never be published, for messages; "" if it may. Both outlive the daemon that recorded
  // them.
  bool vouched = false;
  std::string refused;
  // The job's publish policy, which can only restrict the mount's policy. Records of older versions
  // have none.
  std::optional<PublishPolicy> publish;
  bool active = true;
  Outcome outcome = Outcome::kNone;
  std::time_t started = 0;  // seconds since 1970
  std::time_t ended = 0;
};

std::string to_json(const LayerRecord& record);
// Errors: EINVAL for text that is not a JSON object, or has a field of a wrong type.
Result<LayerRecord> parse_layer_record(std::string_view json);

// Holds the layer's owner.lock during its lifetime. Move-only.
class Layer {
 public:
  // Takes the layer of this job, cycle and node; creates it if it is missing. On return, the layer's owner is recorded
  // durably. Takes or creates another layer beside it instead ("<cycle>@<node>.2" and so on) in these cases: another
  // living daemon holds the layer; the layer belongs to another user (without `shared_uids`); its record is unreadable;
  // it has an upper directory but no record. Errors: EUSERS if none of 64 layers can be taken; EPERM if other users can
  // change the directory.
  static Result<Layer> take(int layers, const LayerRecord& wanted);
  // Takes an existing layer of a job, the directory "<cycle>@<node>". Errors: EWOULDBLOCK if
  // another daemon holds it; EPERM if other users can change it; ENOENT or EINVAL if it has no
  // readable record.
  static Result<Layer> take_existing(int layers, const std::string& job, const std::string& name);

  const LayerRecord& record() const { return record_; }
  // The path relative to the layers' directory.
  const std::string& path() const { return path_; }
  // Saves the record durably. If this fails, record() still returns the previous record.
  Status save(const LayerRecord& record);

  // Appends a complete line to a file beside the record. Not synced. Errors: EFBIG if the file
  // would exceed `most_bytes`.
  Status append(const char* file, std::string_view line, std::size_t most_bytes) const;
  // Replaces the contents of a file beside the record.
  Status replace(const char* file, std::string_view text) const;
  Result<std::string> read(const char* file) const;

  Result<UniqueFd> open_upper() const;
  Result<UniqueFd> open_work() const;

  // Records the end, and renames the directory to "<name>.ended-<time>". Takes the same time for a
  // layer of any size. Without `keep`, also removes the record: call remove() next. The object
  // keeps the lock until it is destroyed.
  Status end(int layers, Outcome outcome, bool keep);
  // Removes the directory of an ended layer. Takes time in proportion to the number of files, so
  // hold no lock that other threads need. After a failure, sweep_ended_layers() removes the rest.
  // Errors: ECANCELED (slices.h).
  Status remove(int layers, const IsWanted& is_wanted = {});

 private:
  Layer(UniqueFd directory, UniqueFd lock, std::string path)
      : directory_(std::move(directory)), lock_(std::move(lock)), path_(std::move(path)) {}
  bool may_be_taken(const LayerRecord& wanted) const;
  Status prepare(const LayerRecord& wanted);
  Status sync_names(int layers) const;

  UniqueFd directory_;
  UniqueFd lock_;
  std::string path_;
  LayerRecord record_;
};

// Takes and returns the layers of this node that are recorded as active and that no daemon holds.
std::vector<Layer> take_orphans(int layers, const std::string& node);

// Ends layers that no daemon holds or will take over: those that started before `started_before` (seconds since 1970).
// A layer of another node must also have started more than `keep_seconds` ago. If a layer's end is recorded, but its
// directory's name lacks the mark, adds the mark. Does not end other nodes' layers of the jobs `uid-<uid>`. Returns the
// number of layers that it has ended.
unsigned end_abandoned_layers(int layers, const std::string& node, std::time_t started_before,
                              std::time_t keep_seconds);

// Removes ended layers that ended at least `keep_seconds` ago, or that have no readable record,
// except those that a daemon holds. Stops when `is_wanted` returns false.
void sweep_ended_layers(int layers, std::time_t keep_seconds, const IsWanted& is_wanted = {});

}  // namespace cacheshim
