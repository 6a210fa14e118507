// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>

#include <cstring>

#include "fuse/jobs/job.h"

// Whether a job's layer may be published. The first change by a user who may not publish ends this:
// the daemon records it before the change is made, and only the end of the layer removes the
// record, whatever the job's name, its daemon and its later writers are.
namespace cacheshim {

void Job::set_refused(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    if (refused_) return;
    why_refused_ = why;
    refused_ = true;
  }
  // The job then neither blocks other jobs nor waits for them.
  settle_locks();
  spdlog::info("job '{}' may not publish: {}; it keeps its layer", id, why);
}

void Job::settle_locks() {
  overlay.share_locks(may_publish() ? rules_.lock_base : -1, rules_.lock_access,
                      rules_.lock_staging);
}

std::string Job::why_refused() const {
  if (!refused_) return "";
  const MutexLock lock(mutex_);
  return why_refused_;
}

Status Job::keep_refusal() {
  if (layer && layer->record().refused.empty()) {
    LayerRecord record = layer->record();
    record.refused = why_refused();
    record.vouched = false;
    CACHESHIM_CHECK(layer->save(record));
  }
  refusal_is_kept_ = true;
  return {};
}

Status Job::refuse(const std::string& why) {
  const WriterLock lock(overlay.mutex());  // publishing in progress has checked the layer before the change
  set_refused(why);
  return keep_refusal();
}

void Job::forget_layer() {
  {
    const MutexLock lock(mutex_);
    conflicts_.clear();
    kept_.clear();
    why_refused_.clear();
    refused_ = false;
    refusal_is_kept_ = false;
  }
  settle_locks();
}

void Job::keep_claim() {
  {
    const ReaderLock lock(overlay.mutex());
    if (!layer || layer->record().uid == view(0).uid) return;
  }
  const WriterLock lock(overlay.mutex());
  const auto owner = view(0).uid;
  if (!layer || layer->record().uid == owner) return;
  LayerRecord record = layer->record();
  record.uid = owner;
  if (const Status kept = layer->save(record); !kept) {
    spdlog::error(
        "cannot record who owns the layer of job '{}': {}; if the daemon dies, the next user of the job "
        "id gets it",
        id, std::strerror(kept.error().code()));
  }
}

// For a layer that already existed.
void Job::settle_trust() {
  const LayerRecord& found = layer->record();
  if (!found.refused.empty()) {
    set_refused(found.refused);
  } else if (rules_.is_restricted && !found.vouched) {
    set_refused("its layer is of a time when nobody looked at who writes to it");
  }
  if (!refused_ && found.vouched && !rules_.is_restricted) {
    LayerRecord record = found;
    record.vouched = false;
    (void)layer->save(record);  // while everybody may publish, the record has no effect
    return;
  }
  if (!refused_) return;
  if (const Status kept = keep_refusal(); !kept) {
    spdlog::error(
        "cannot record that job '{}' may not publish: {}; tried again with its next change", id,
        std::strerror(kept.error().code()));
  }
}

}  // namespace cacheshim
