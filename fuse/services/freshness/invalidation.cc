// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/invalidation.h"

#include <algorithm>
#include <future>
#include <set>
#include <string_view>
#include <utility>

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

uid_t owner_of(const Job& job, ViewSlot view) { return job.views.owner(view).value_or(kNoOwner); }

Notification name_notification(NodeId directory, std::string name, uid_t owner) {
  return {directory, std::move(name), Notification::Kind::kName, owner};
}

Notification node_notification(NodeId node, uid_t owner) {
  return {node, {}, Notification::Kind::kNode, owner};
}

Notification epoch_notification() { return {0, {}, Notification::Kind::kEpoch}; }

// Returns the changes that the removal of these paths makes. Treats each path as a directory: the removal of a
// directory also removes all names below it, including names that `removed` does not list.
std::vector<BaseChange> changes_by(const std::vector<std::string>& removed) {
  std::vector<BaseChange> changes;
  for (const std::string& path : removed) {
    changes.push_back({BaseChange::Kind::kDirectoryName, std::string(parent_path(path)),
                       std::string(base_name(path))});
  }
  return changes;
}

}  // namespace

// Returns the jobs whose views the kernel has looked up. The other jobs need no invalidations, and there may be many of
// them: a user can begin hundreds of jobs, and ended jobs stay in the table.
std::vector<std::shared_ptr<Job>> Invalidation::known_jobs() const {
  std::vector<std::shared_ptr<Job>> jobs = jobs_.all();
  std::erase_if(jobs, [this](const auto& job) { return !nodes_.is_looked_up(job->view_root); });
  return jobs;
}

void Invalidation::add(const BaseChange& change, const Job& job,
                       Notifications& notifications) const {
  const NodeIndex directory = nodes_.names().find_path(job.view_root, change.directory);
  if (directory == 0) return;
  const bool is_content = change.kind == BaseChange::Kind::kContent;
  // The change of a name also changes the directory that contains the name.
  const NodeIndex changed =
      is_content && !change.name.empty() ? nodes_.names().find(directory, change.name) : directory;
  for (std::size_t slot = 0; slot < job.views.count(); ++slot) {
    const auto view = static_cast<ViewSlot>(slot);
    const uid_t owner = owner_of(job, view);
    if (!is_content)
      notifications.push_back(name_notification(encode({directory, view}), change.name, owner));
    if (changed != 0) notifications.push_back(node_notification(encode({changed, view}), owner));
  }
}

void Invalidation::name_changed(const Job& job, const std::string& directory,
                                const std::string& name, std::vector<NodeId> held, Done done) {
  Notifications notifications;
  add({BaseChange::Kind::kName, directory, name}, job, notifications);
  notifier_->post(std::move(notifications), held, std::move(done));
}

// No thread may wait for this invalidation: the invalidation may itself wait for the lock of a page in another view,
// and a write holds this lock until the daemon has answered the write.
void Invalidation::data_changed(const Job& job, NodeIndex node, ViewSlot slot) {
  if (!job.views.shares_uids()) return;
  Notifications notifications;
  for (std::size_t other = 0; other < job.views.count(); ++other) {
    if (other == slot) continue;
    const auto view = static_cast<ViewSlot>(other);
    notifications.push_back(node_notification(encode({node, view}), owner_of(job, view)));
  }
  notifier_->post(std::move(notifications), {}, [] {});
}

// Adds the invalidations of all nodes of the job. Also adds all names if the kernel cannot invalidate all names at once
// (Linux before 6.16).
void Invalidation::add_all(const Job& job, Notifications& notifications) const {
  for (const NodeNames::NamedNode& named : nodes_.names().all_of(&job)) {
    for (std::size_t slot = 0; slot < job.views.count(); ++slot) {
      const auto view = static_cast<ViewSlot>(slot);
      const uid_t owner = owner_of(job, view);
      if (!notifier_->knows_epoch()) {
        notifications.push_back(name_notification(encode({named.parent, view}), named.name, owner));
      }
      notifications.push_back(node_notification(encode({named.node, view}), owner));
    }
  }
}

void Invalidation::base_changed(const std::vector<BaseChange>& changes) {
  notifier_->post(notifications_of(changes), {}, [] {});
}

Invalidation::Notifications Invalidation::notifications_of(const std::vector<BaseChange>& changes) {
  bool lost = false;
  bool moved = false;
  for (const BaseChange& change : changes) {
    generations_.change(change.directory);
    lost = lost || change.kind == BaseChange::Kind::kUnknown;
    moved = moved || change.kind == BaseChange::Kind::kDirectoryName;
  }
  if (direct_ != nullptr) direct_->changes.count();
  // If a directory has moved, all names below it have changed too, including names that a lookup has just found but the
  // kernel has not cached yet.
  if (moved || lost) generations_.change_all();
  Notifications notifications;
  if (moved || lost) notifications.push_back(epoch_notification());
  const bool all = lost || (moved && !notifier_->knows_epoch());
  for (const auto& job : known_jobs()) {
    if (all) {
      add_all(*job, notifications);
    } else {
      for (const BaseChange& change : changes) add(change, *job, notifications);
    }
  }
  return notifications;
}

// Returns the invalidations of `paths`, which were added to the base, and of their parent directories, which may be
// new. Covers the views of all jobs except `publisher`, which may be null. Skips views in which the kernel has not
// looked up the directory. Also counts the changes (Generations).
Invalidation::Notifications Invalidation::notifications_of_added(
    const std::vector<std::string>& paths, const Job* publisher) {
  Notifications notifications;
  std::set<std::string_view> names;
  for (const std::string& path : paths) {
    for (std::string_view name = path; !name.empty(); name = parent_path(name)) {
      if (!names.emplace(name).second) break;
    }
  }
  const auto jobs = known_jobs();
  for (const std::string_view name : names) {
    const BaseChange change{BaseChange::Kind::kName, std::string(parent_path(name)),
                            std::string(base_name(name))};
    generations_.change(change.directory);
    for (const auto& job : jobs) {
      if (job.get() != publisher) add(change, *job, notifications);
    }
  }
  return notifications;
}

// Returns the invalidations in the publisher's own view. This view now shows the base's files in place of the job's
// copies. It also shows the other names that the base has in the entry's directories, which the layer hid before.
Invalidation::Notifications Invalidation::notifications_of_uncovered(const PublishReport& report,
                                                                     const Job& job) const {
  const std::set<std::string_view> published(report.paths.begin(), report.paths.end());
  std::set<std::string_view> directories;
  for (const std::string& path : report.paths) directories.insert(parent_path(path));
  for (const std::string& path : report.copies) directories.insert(parent_path(path));
  Notifications notifications;
  for (const std::string_view directory : directories) {
    const ReaderLock lock(job.overlay.mutex());
    const auto listed = job.overlay.list(std::string(directory));
    if (!listed) continue;
    for (const ListedEntry& entry : *listed) {
      if (published.contains(join_path(directory, entry.name))) continue;
      add({BaseChange::Kind::kName, std::string(directory), entry.name}, job, notifications);
    }
  }
  return notifications;
}

// Blocks until the kernel has processed the invalidations, except those in the views of late users (LateOwners).
void Invalidation::notify_and_wait(Notifications notifications) const {
  auto sent = std::make_shared<std::promise<void>>();
  auto future = sent->get_future();
  notifier_->post(std::move(notifications), {}, [sent] { sent->set_value(); });
  future.wait();
}

void Invalidation::published(const PublishReport& report, const Job& publisher,
                             std::vector<NodeId> held, Done answer) {
  notifier_->post(notifications_of_added(report.paths, &publisher), held, std::move(answer));
  notifier_->post(notifications_of_uncovered(report, publisher), {}, [] {});
}

void Invalidation::published_and_wait(const PublishReport& report, const Job& publisher) {
  notify_and_wait(notifications_of_added(report.paths, &publisher));
}

void Invalidation::uncovered(const PublishReport& report, const Job& job, Done answer) {
  notifier_->post(notifications_of_uncovered(report, job), {}, std::move(answer));
}

void Invalidation::attributes_changed(const Job& job, NodeIndex node) {
  std::vector<NodeId> shown;
  for (std::size_t slot = 0; slot < job.views.count(); ++slot)
    shown.push_back(encode({node, static_cast<ViewSlot>(slot)}));
  notifier_->invalidate_attributes(shown);
}

void Invalidation::added(const std::vector<std::string>& paths) {
  notifier_->post(notifications_of_added(paths, nullptr), {}, [] {});
}

void Invalidation::removed(const std::vector<std::string>& paths) {
  if (!paths.empty()) base_changed(changes_by(paths));
}

void Invalidation::removed_and_wait(const std::vector<std::string>& paths) {
  if (!paths.empty()) notify_and_wait(notifications_of(changes_by(paths)));
}

// The kernel holds the directory's lock until it gets the answer, and invalidations of names in the directory wait for
// this lock. So these invalidations follow the answer.
void Invalidation::removed_before_answer(const std::vector<std::string>& paths, NodeId directory,
                                         Done answer) {
  if (paths.empty()) return answer();
  auto notifications = notifications_of(changes_by(paths));
  const auto held = std::stable_partition(notifications.begin(), notifications.end(),
                                          [directory](const Notification& notification) {
                                            return notification.kind != Notification::Kind::kName ||
                                                   notification.directory != directory;
                                          });
  Notifications later(held, notifications.end());
  notifications.erase(held, notifications.end());
  notifier_->post(std::move(notifications), {directory}, std::move(answer));
  notifier_->post(std::move(later), {}, [] {});
}

// Invalidates all names, because the kernel may have cached any name that the layer contained or hid.
Invalidation::Done Invalidation::layer_dropped(const Job& job) {
  Notifications notifications{epoch_notification()};
  add_all(job, notifications);
  return [this, notifications = std::move(notifications)] { notify_and_wait(notifications); };
}

}  // namespace cacheshim
