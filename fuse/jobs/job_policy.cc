// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/job_policy.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

namespace cacheshim {

void JobPolicy::begin(PublishPolicy mount, std::optional<PublishPolicy> claimed) {
  wanted_ = std::min(mount, claimed.value_or(mount));
}

void JobPolicy::set_refused(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    if (refused_) return;
    why_refused_ = why;
    refused_ = true;
  }
  spdlog::info("job '{}' may not publish: {}; it keeps its layer", job_id_, why);
}

std::string JobPolicy::why_refused() const {
  if (!refused_) return "";
  const MutexLock lock(mutex_);
  return why_refused_;
}

Status JobPolicy::record_refusal(Layer* layer) {
  if (layer != nullptr && layer->record().refused.empty()) {
    LayerRecord record = layer->record();
    record.refused = why_refused();
    record.vouched = false;
    CACHESHIM_CHECK(layer->save(record));
  }
  is_recorded_ = true;
  return {};
}

Status JobPolicy::refuse(const std::string& why, Layer* layer) {
  set_refused(why);
  return record_refusal(layer);
}

void JobPolicy::forget_layer() {
  const MutexLock lock(mutex_);
  why_refused_.clear();
  refused_ = false;
  is_recorded_ = false;
}

void JobPolicy::take_over(Layer& layer) {
  const LayerRecord& found = layer.record();
  if (!found.refused.empty()) {
    set_refused(found.refused);
  } else if (settings_.is_restricted && !found.vouched) {
    set_refused("its layer was begun without a publish policy, when nobody checked who wrote to it");
  }
  if (!refused_ && found.vouched && !settings_.is_restricted) {
    LayerRecord record = found;
    record.vouched = false;
    (void)layer.save(record);  // while everybody may publish, the record has no effect
    return;
  }
  if (!refused_) return;
  if (const Status recorded = record_refusal(&layer); !recorded) {
    spdlog::error(
        "cannot record that job '{}' may not publish: {}; tried again with its next change",
        job_id_, std::strerror(recorded.error().code()));
  }
}

void JobPolicy::fill(LayerRecord& record) const {
  const MutexLock lock(mutex_);
  record.vouched = settings_.is_restricted && !refused_;
  record.refused = why_refused_;
  record.publish = wanted_.load();
}

}  // namespace cacheshim
