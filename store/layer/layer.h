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

// A job's layer on disk: LAYERS/<job>/<cycle>@<node>/{upper,work,meta.json,owner.lock}.
namespace cacheshim {

enum class Outcome { kNone, kSuccess, kFailure };
std::string_view to_string(Outcome outcome);

inline constexpr const char* kLayerRecordFile = "meta.json";  // in a layer's folder
// In the name of a layer's folder that has ended and is kept for a while; then the time.
inline constexpr std::string_view kEndedLayerMark = ".ended-";

// meta.json. Fields that a reader does not know are skipped, those that are missing keep these
// defaults, so that older and newer versions read each other's records.
struct LayerRecord {
  std::string job;
  std::string cycle;
  std::string node;
  std::optional<unsigned> uid;  // the first user other than root
  bool shared_uids = false;
  // Whether everybody who has written to it was one whose work may be published; and why, for people, it
  // may never be: "" where nothing speaks against it. Either outlives the daemon that found it out.
  bool vouched = false;
  std::string refused;
  // As the job wants it, no more than the mount's policy; nothing in records of older versions.
  std::optional<PublishPolicy> publish;
  bool active = true;
  Outcome outcome = Outcome::kNone;
  std::time_t started = 0;  // seconds since 1970
  std::time_t ended = 0;
};

std::string to_json(const LayerRecord& record);
// Errors: EINVAL for text that is no JSON object.
Result<LayerRecord> parse_layer_record(std::string_view json);

// Holds the layer's owner.lock while it lives. Move-only.
class Layer {
 public:
  // Takes the layer of this job, cycle and node; makes it if it is missing. When this returns, the layer's
  // owner is recorded durably. Does not take a layer that another living daemon holds, that belongs to
  // another user, or whose owner is not recorded; makes a further one beside it ("<cycle>@<node>.2").
  static Result<Layer> take(int layers, const LayerRecord& wanted);
  // Takes an existing folder of a job, "<cycle>@<node>". Errors: EWOULDBLOCK where it is held.
  static Result<Layer> take_existing(int layers, const std::string& job, const std::string& name);

  const LayerRecord& record() const { return record_; }
  // Relative to the layers' folder.
  const std::string& path() const { return path_; }
  // Durably.
  Status save(const LayerRecord& record);

  // A file beside the record: a line more, all of it. Not synced.
  Status append(const char* file, std::string_view line) const;
  Result<std::string> read(const char* file) const;

  Result<UniqueFd> open_upper() const;
  Result<UniqueFd> open_work() const;

  // Records the end and gives the folder up: removed at once, or kept as "<name>.ended-<time>" for
  // sweep_ended_layers(). The lock goes with it.
  Status end(int layers, Outcome outcome, bool keep);

 private:
  Layer(UniqueFd folder, UniqueFd lock, std::string path)
      : folder_(std::move(folder)), lock_(std::move(lock)), path_(std::move(path)) {}
  bool may_be_taken(const LayerRecord& wanted) const;
  Status prepare(const LayerRecord& wanted);
  Status sync_names(int layers) const;

  UniqueFd folder_;
  UniqueFd lock_;
  std::string path_;
  LayerRecord record_;
};

// The layers of this node that are on record as active and that nobody holds.
std::vector<Layer> take_orphans(int layers, const std::string& node);

// Puts away layers on record as active that nobody holds and that no daemon will take up: older ones of
// this node than `started_before`, seconds since 1970, and those of other nodes that have been left for
// longer than `keep_seconds`. `uid-<uid>` layers of other nodes are left to them. Returns how many.
unsigned end_abandoned_layers(int layers, const std::string& node, std::time_t started_before,
                              std::time_t keep_seconds);

// Removes ended layers that are older than `keep_seconds`.
void sweep_ended_layers(int layers, std::time_t keep_seconds);

}  // namespace cacheshim
