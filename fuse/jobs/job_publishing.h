// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "fuse/jobs/entry_reads.h"
#include "fuse/jobs/job_life.h"
#include "fuse/jobs/job_policy.h"
#include "fuse/jobs/job_views.h"
#include "fuse/jobs/unsettled_writes.h"
#include "fuse/nodes/node_table.h"
#include "store/publish/publish_hooks.h"
#include "store/publish/publisher.h"
#include "store/sys/name_table.h"
#include "store/threads/mutex.h"

namespace cacheshim {

// Records what a job has published, and why its other entries stay in the layer. Answers the publisher's queries about
// the job. Thread-safe.
class JobPublishing final : public PublishHooks {
 public:
  // The maximum memory of each of the two tables: enough for 4,500 units with names of 100 bytes.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  struct Parts {  // all must outlive JobPublishing
    const std::string& job_id;
    const JobLife& life;
    const JobViews& views;
    const JobPolicy& policy;
    UnsettledWrites& unsettled;
    EntryReads& reads;
    NodeTable& nodes;
    const NodeIndex& view_root;
    // Makes the kernel request the attributes of the object at `path`, and of its directory, again.
    std::function<void(const std::string& path)> attributes_changed;
  };
  explicit JobPublishing(const Parts& parts) : parts_(parts) {}

  // The totals of all publishing by the job since begin().
  struct Total {
    std::uint64_t entries = 0;
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;
  };
  void begin() EXCLUDES(mutex_);
  void count(const PublishReport& report) EXCLUDES(mutex_);
  Total total() const EXCLUDES(mutex_);

  // Returns the reason why the last attempt did not publish the unit; "" if there was no attempt, if the unit is
  // published, or if more units than kMostBytes allows stay in the layer.
  std::string why_unpublished(const std::string& unit) const EXCLUDES(mutex_);
  // Call when the job has dropped its layer. Forgets the units that stayed in the layer.
  void forget_layer() EXCLUDES(mutex_);

 private:
  bool is_being_written(dev_t device, ino_t inode) override;
  bool wait_until_closed(dev_t device, ino_t inode) override;
  bool note_conflict(const std::string& unit) override;
  bool note_why_unpublished(const std::string& unit, const std::string& reason) override;
  std::string why_refused() const override;
  PublishingJob identity() const override;
  bool has_one_user() const override;
  bool has_rejected(const std::string& unit) override;
  void settle_rejected(const std::string& unit) override;
  bool may_replace() const override;
  void published(const std::string& path, const struct stat& base) override;

  const Parts parts_;
  mutable Mutex mutex_;
  Total total_ GUARDED_BY(mutex_);
  // The units that conflict with the base. Each counts once, however often the publisher tries to publish it. Units
  // beyond kMostBytes are not counted, because without a record each attempt would count.
  NameTable<std::monostate> conflicts_ GUARDED_BY(mutex_){kMostBytes};
  // The units that stay in the layer, with the reasons. Units beyond kMostBytes are neither counted as refused nor
  // logged.
  NameTable<std::string> kept_ GUARDED_BY(mutex_){kMostBytes};
};

}  // namespace cacheshim
