// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <set>
#include <utility>

#include "fuse/vfs/filesystem.h"
#include "fuse/vfs/timeouts.h"
#include "store/sys/guard.h"
#include "store/sys/sys.h"

// How long the kernel may keep an answer, and what it is told of when the base changes: by this
// daemon's publishing, or by other processes as BaseWatch sees them.
namespace cacheshim {
namespace {

// A base file that changed just now may still be being written: its writer tells of it by closing
// it, until then it is asked for often.
constexpr time_t kSettleSeconds = 5;

bool has_settled(const struct stat& st) {
  timespec now{};
  (void)::clock_gettime(CLOCK_REALTIME_COARSE, &now);  // cannot fail for a known clock
  return now.tv_sec - st.st_ctim.tv_sec > kSettleSeconds;
}

Notifier::Notice node_notice(NodeId node) { return {node, {}, Notifier::Notice::Kind::kNode}; }

}  // namespace

Filesystem::Look Filesystem::begin_look(const Job& job, std::string folder) {
  const std::uint64_t generation = generations_.of(folder);
  const bool watched = watch_->ensure(folder) && is_base_local_;
  return {&job, std::move(folder), generation, watched, job.is_claimed()};
}

// Uids that share a job see each other's changes without notices. What is in the layer only this
// daemon changes.
double Filesystem::keep_name(const Look& look, const Found* found) const {
  if (look.job->shares_uids()) return 0;
  if (found != nullptr && found->in_upper) return kLongTimeout;
  if (look.generation != generations_.of(look.folder)) return 0;
  // What is kept of names that are not there is not known here: all of it must expire at once where
  // notices are lost.
  const bool can_expire = found != nullptr || notifier_->knows_epoch();
  return look.watched && can_expire ? kLongTimeout : kShortTimeout;
}

double Filesystem::keep_attr(const Look& look, const Found& found, NodeRef ref) {
  const double keep = keep_name(look, &found);
  if (may_be_written_unseen(look, found, ref)) return 0;
  if (look.claimed != look.job->is_claimed()) return 0;  // it may be shown as root's
  if (found.in_upper || keep != kLongTimeout) return keep;
  if (S_ISDIR(found.st.st_mode)) return keep;
  return has_settled(found.st) ? kLongTimeout : kShortTimeout;
}

// Whether the kernel may write to the file through a mapping, which no request reports. st_mtime and st_ctime
// change all the same. Requires: Overlay::mutex(), so that no thread opens the file for writing.
bool Filesystem::may_be_written_unseen(const Look& look, const Found& found, NodeRef ref) {
  if (!found.in_upper || !S_ISREG(found.st.st_mode)) return false;
  if (!io_modes_.may_be_written(encode(ref))) return false;
  const auto path = nodes_.path(ref.node);
  if (!path) return true;
  return io_modes_.check_may_be_written(encode(ref), [&] {
    const auto file = look.job->overlay.open(*path, O_RDONLY);
    return !file || sys::can_be_written(file->fd.get());  // not opened, not known
  });
}

void Filesystem::add_notices(const BaseChange& change, const Job& job,
                             std::vector<Notifier::Notice>& notices) const {
  const NodeIndex folder = nodes_.find_path(job.view_root, change.folder);
  if (folder == 0) return;
  const bool is_content = change.kind == BaseChange::Kind::kContent;
  // A changed name changes its folder too.
  const NodeIndex changed =
      is_content && !change.name.empty() ? nodes_.find(folder, change.name) : folder;
  for (std::size_t slot = 0; slot < job.view_count(); ++slot) {
    const auto view = static_cast<ViewSlot>(slot);
    if (!is_content) notices.push_back({encode({folder, view}), change.name});
    if (changed != 0) notices.push_back(node_notice(encode({changed, view})));
  }
}

// The data of a file were changed in one view of a job that several uids share. Nobody waits for it:
// the others' pages may be held by a write of theirs that waits for its answer.
void Filesystem::tell_other_views(const Job& job, NodeIndex node, ViewSlot slot) {
  if (!job.shares_uids()) return;
  std::vector<Notifier::Notice> notices;
  for (std::size_t other = 0; other < job.view_count(); ++other) {
    if (other == slot) continue;
    notices.push_back(node_notice(encode({node, static_cast<ViewSlot>(other)})));
  }
  notifier_->post(std::move(notices), {}, [] {});
}

// The first user other than root has come: what the kernel keeps of the view it keeps as root's. It is
// told before that user is answered, whose next calls then see their own. Only attributes have
// changed. To tell of these waits for nothing, so that an answer can wait for it whatever its request
// holds; but it takes a while where the kernel knows much of the view, hence a thread of its own.
//
// An answer with the attributes of a node that is told of meanwhile is dropped by the kernel, which
// then refuses by the old ones: the node that was asked for is left out, and further callers who ask
// for nodes do not wait.
void Filesystem::answer_entered(Job& job, NodeIndex asked, std::function<void()> answer) {
  if (job.begin_telling_claim()) {
    claims_.post([this, &job, asked, answer = std::move(answer)] {
      (void)run_guarded("telling of a job's first user", [&] {
        job.keep_claim();
        tell_of_claim(job, asked);
      });
      job.end_telling_claim();
      answer();
    });
  } else if (asked == 0 && job.is_claimed() && !job.is_claim_told()) {
    claims_.post(std::move(answer));
  } else {
    answer();
  }
}

// Of the view's root the kernel asks whenever its name is looked up, and before it refuses anybody.
void Filesystem::tell_of_claim(const Job& job, NodeIndex asked) const {
  std::vector<Notifier::FolderId> nodes;
  for (const NodeTable::NamedNode& named : nodes_.all_of(&job)) {
    if (named.node != asked) nodes.push_back(encode({named.node, 0}));
  }
  notifier_->tell_attributes(nodes);
}

// For a kernel that cannot be told that all its names may be wrong, each of them.
void Filesystem::add_notices_of_all(const Job& job, std::vector<Notifier::Notice>& notices) const {
  for (const NodeTable::NamedNode& named : nodes_.all_of(&job)) {
    for (std::size_t slot = 0; slot < job.view_count(); ++slot) {
      const auto view = static_cast<ViewSlot>(slot);
      if (!notifier_->knows_epoch()) notices.push_back({encode({named.parent, view}), named.name});
      notices.push_back(node_notice(encode({named.node, view})));
    }
  }
}

void Filesystem::base_changed(const std::vector<BaseChange>& changes) {
  notifier_->post(notices_of(changes), {}, [] {});
}

std::vector<Notifier::Notice> Filesystem::notices_of(const std::vector<BaseChange>& changes) {
  bool lost = false;
  bool moved = false;
  for (const BaseChange& change : changes) {
    generations_.change(change.folder);
    lost = lost || change.kind == BaseChange::Kind::kUnknown;
    moved = moved || change.kind == BaseChange::Kind::kFolderName;
  }
  if (options_.direct != nullptr) options_.direct->changes.count();
  // What lies below a folder that moved has moved with it, known or not.
  if (moved || lost) generations_.change_all();
  std::vector<Notifier::Notice> notices;
  if (moved || lost) notices.push_back({0, {}, Notifier::Notice::Kind::kEpoch});
  const bool all = lost || (moved && !notifier_->knows_epoch());
  for (const Job* job : jobs_.all()) {
    if (all) {
      add_notices_of_all(*job, notices);
    } else {
      for (const BaseChange& change : changes) add_notices(change, *job, notices);
    }
  }
  return notices;
}

// Every other view that knows the folder of a published name is told of the name, and of those of
// the folders above it that may be new to it.
std::vector<Notifier::Notice> Filesystem::notices_of(const PublishReport& report,
                                                     const Job* publisher) {
  std::vector<Notifier::Notice> notices;
  std::set<std::string_view> names;
  for (const std::string& path : report.paths) {
    for (std::string_view name = path; !name.empty(); name = parent_path(name)) {
      if (!names.emplace(name).second) break;
    }
  }
  for (const std::string_view name : names) {
    const BaseChange change{BaseChange::Kind::kName, std::string(parent_path(name)),
                            std::string(base_name(name))};
    generations_.change(change.folder);
    for (const Job* job : jobs_.all()) {
      if (job != publisher) add_notices(change, *job, notices);
    }
  }
  return notices;
}

// The publisher's own view sees, from now on, what else the base has in the folders of its entry, which was hidden as
// long as the entry was the layer's alone, and the base's files in place of its copies.
std::vector<Notifier::Notice> Filesystem::notices_of_uncovered(const PublishReport& report,
                                                               const Job& job) {
  const std::set<std::string_view> published(report.paths.begin(), report.paths.end());
  std::set<std::string_view> folders;
  for (const std::string& path : report.paths) folders.insert(parent_path(path));
  for (const std::string& path : report.copies) folders.insert(parent_path(path));
  std::vector<Notifier::Notice> notices;
  for (const std::string_view folder : folders) {
    const std::shared_lock lock(job.overlay.mutex());
    const auto listed = job.overlay.list(std::string(folder));
    if (!listed) continue;
    for (const ListedEntry& entry : *listed) {
      if (published.contains(join_path(folder, entry.name))) continue;
      add_notices({BaseChange::Kind::kName, std::string(folder), entry.name}, job, notices);
    }
  }
  return notices;
}

}  // namespace cacheshim
