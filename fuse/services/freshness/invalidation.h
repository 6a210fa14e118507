// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuse/jobs/invalidator.h"
#include "fuse/jobs/job_table.h"
#include "fuse/nodes/node_table.h"
#include "fuse/services/freshness/generations.h"
#include "fuse/services/freshness/notifier.h"
#include "store/base/base_watch.h"

namespace cacheshim {

// Finds the names and nodes that a change affects in each view, and has the Notifier invalidate them. The daemon makes
// the change itself, or BaseWatch reports the change of another process.
class Invalidation final : public Invalidator {
 public:
  // All must outlive this object; `direct` may be null.
  Invalidation(NodeTable& nodes, const JobTable& jobs, const DirectAccess* direct)
      : nodes_(nodes), jobs_(jobs), direct_(direct) {}

  // Call before any other method. `device`: the session's descriptor. `device` and `loop` must outlive this object.
  void start(int device, EventLoop& loop) { notifier_ = std::make_unique<Notifier>(device, loop); }
  // As Notifier::stop().
  void stop() {
    if (notifier_) notifier_->stop();
  }
  Notifier& notifier() const { return *notifier_; }
  // The change counters of the base's directories.
  const Generations& generations() const { return generations_; }

  void base_changed(const std::vector<BaseChange>& changes);
  // Call when a name in the job's view has changed, if the kernel does not know about the change or has cached the name
  // with too long a timeout. `held` and `done`: as for Notifier::post().
  void name_changed(
      const Job& job, const std::string& directory, const std::string& name,
      std::vector<NodeId> held = {}, Done done = [] {});
  // Call when a process has changed a file's data or attributes through the view `slot`. Invalidates them in the job's
  // other views. Does not block.
  void data_changed(const Job& job, NodeIndex node, ViewSlot slot);
  // As removed(), for a request during which the kernel holds the lock of `directory`; `answer` sends the reply. The
  // kernel delays invalidations of names in `directory` until it gets the reply. So removed_before_answer() sends these
  // invalidations after it has called `answer`, and all others before.
  void removed_before_answer(const std::vector<std::string>& paths, NodeId directory, Done answer);

  std::shared_ptr<void> hold(std::vector<NodeId> directories) override {
    return notifier_->hold(std::move(directories));
  }
  void published(const PublishReport& report, const Job& publisher, std::vector<NodeId> held,
                 Done answer) override;
  void published_and_wait(const PublishReport& report, const Job& publisher) override;
  void uncovered(const PublishReport& report, const Job& job, Done answer) override;
  void attributes_changed(const Job& job, NodeIndex node) override;
  void added(const std::vector<std::string>& paths) override;
  void removed(const std::vector<std::string>& paths) override;
  void removed_and_wait(const std::vector<std::string>& paths) override;
  Done layer_dropped(const Job& job) override;

 private:
  using Notifications = std::vector<Notification>;

  std::vector<std::shared_ptr<Job>> known_jobs() const;
  void add(const BaseChange& change, const Job& job, Notifications& notifications) const;
  void add_all(const Job& job, Notifications& notifications) const;
  Notifications notifications_of(const std::vector<BaseChange>& changes);
  Notifications notifications_of_added(const std::vector<std::string>& paths, const Job* publisher);
  Notifications notifications_of_uncovered(const PublishReport& report, const Job& job) const;
  void notify_and_wait(Notifications notifications) const;

  NodeTable& nodes_;
  const JobTable& jobs_;
  const DirectAccess* const direct_;
  Generations generations_;
  std::unique_ptr<Notifier> notifier_;
};

}  // namespace cacheshim
