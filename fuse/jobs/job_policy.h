// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "common/result.h"
#include "store/layer/layer.h"
#include "store/profiles/publish_policy.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// A job's publish policy, and whether its layer may be published. Once a user who may not publish changes the layer,
// the layer may never be published. The daemon records this refusal before it makes the change. The record exists as
// long as the layer does, no matter which job, daemon or users use the layer later. Thread-safe.
class JobPolicy {
 public:
  struct Settings {
    PublishPolicy initial = PublishPolicy::kComplete;  // the policy before begin()
    // Whether only some users may publish: the daemon then checks the writers of each layer.
    bool is_restricted = false;
  };
  JobPolicy(std::string job_id, const Settings& settings)
      : job_id_(std::move(job_id)), settings_(settings), wanted_(settings.initial) {}

  // `claimed`, the policy in the job's environment or record, can only restrict the mount's policy.
  void begin(PublishPolicy mount, std::optional<PublishPolicy> claimed);

  // effective() is the policy that applies now. wanted() is the policy that would apply without the layer's refusal.
  PublishPolicy effective() const { return refused_ ? PublishPolicy::kNever : wanted(); }
  PublishPolicy wanted() const { return wanted_.load(); }
  bool may_publish() const { return effective() != PublishPolicy::kNever; }

  // ---- The layer's refusal. `layer` is the job's layer, or null if it has none. refuse(), take_over() and
  // forget_layer() require the job's Overlay::mutex() held exclusively; is_refused() and why_refused() do not.

  // Ensures that no daemon ever publishes the layer's contents from now on. Call before the change that causes the
  // refusal. Errors: those of writing the record; the next call tries again.
  Status refuse(const std::string& why, Layer* layer) EXCLUDES(mutex_);
  // Call for a layer that may have existed before: takes over the refusal in its record. If is_restricted, also refuses
  // a layer whose writers no daemon has checked.
  void take_over(Layer& layer) EXCLUDES(mutex_);
  // Call when the job has dropped its layer. Forgets the layer's refusal.
  void forget_layer() EXCLUDES(mutex_);

  // Whether nothing in the layer can ever be published. True if the refusal is in the layer's record. Also true if
  // publishing was refused before the layer existed: fill() then sets the refusal in the new layer's record.
  bool is_refused() const { return is_recorded_; }
  std::string why_refused() const EXCLUDES(mutex_);  // for messages; "" if not refused
  // Sets the policy and the refusal in a new layer's record.
  void fill(LayerRecord& record) const EXCLUDES(mutex_);

 private:
  void set_refused(const std::string& why);
  Status record_refusal(Layer* layer);

  const std::string job_id_;
  const Settings settings_;
  std::atomic<PublishPolicy> wanted_;
  std::atomic<bool> refused_{false};
  std::atomic<bool> is_recorded_{false};
  mutable Mutex mutex_;
  std::string why_refused_ GUARDED_BY(mutex_);
};

}  // namespace cacheshim
