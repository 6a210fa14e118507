// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "fuse/vfs/filesystem.h"
#include "store/layer/layer.h"
#include "store/sys/guard.h"

// Keeping the store in bounds: eviction, repair, and what daemons that are gone have left.
namespace cacheshim {
namespace {

// On a network file system another machine may have a file open that is in trash: removed, it would be
// stale there.
constexpr std::time_t kTrashKeepSeconds = 3600;

// What was below a folder goes with it, known or not.
std::vector<BaseChange> changes_by(const std::vector<std::string>& gone) {
  std::vector<BaseChange> changes;
  for (const std::string& path : gone) {
    changes.push_back({BaseChange::Kind::kFolderName, std::string(parent_path(path)),
                       std::string(base_name(path))});
  }
  return changes;
}

}  // namespace

// Every view is told.
void Filesystem::tell_of_gone(const std::vector<std::string>& paths) {
  if (!paths.empty()) base_changed(changes_by(paths));
}

// Before who has asked for it is answered.
void Filesystem::tell_of_gone_and_wait(const std::vector<std::string>& paths) {
  if (!paths.empty()) notify_and_wait(notices_of(changes_by(paths)));
}

void Filesystem::answer_gone(const std::vector<std::string>& paths, NodeId folder,
                             std::function<void()> answer) {
  if (paths.empty()) return answer();
  auto notices = notices_of(changes_by(paths));
  // Those of the folder itself wait for the answer.
  const auto held = std::stable_partition(
      notices.begin(), notices.end(), [folder](const Notifier::Notice& notice) {
        return notice.kind != Notifier::Notice::Kind::kName || notice.folder != folder;
      });
  std::vector<Notifier::Notice> later(held, notices.end());
  notices.erase(held, notices.end());
  notifier_->post(std::move(notices), {folder}, std::move(answer));
  notifier_->post(std::move(later), {}, [] {});
}

// verify_on_open: what has gone to trash since it is damaged, of the entry of what somebody is about to
// see of the base.
std::vector<std::string> Filesystem::put_damaged_away(NodeRef ref) {
  const NodeInfo info = nodes_.info(ref.node);
  const bool is_object = info.kind == NodeKind::kObject && !info.removed;
  if (!verifier_ || !is_object || info.in_upper || info.is_dir) return {};
  const auto path = [&] {
    const std::shared_lock lock(info.job->overlay.mutex());
    return nodes_.path(ref.node);
  }();
  if (!path) return {};
  OpenVerifier::Verdict verdict = verifier_->check(*path);
  if (verdict.why.empty()) return {};
  counters_.verify_failures.fetch_add(1, std::memory_order_relaxed);
  spdlog::warn("verify_on_open: {}; {}", verdict.why,
               verdict.gone.empty() ? "it is used all the same" : "its entry goes to trash");
  return std::move(verdict.gone);
}

Result<EvictionReport> Filesystem::collect_garbage(bool dry_run) {
  CACHESHIM_TRY(lock, store_.try_lock_base());
  EvictionReport report = plan_eviction(store_, entries_, options_.gc);
  if (dry_run) return report;
  tell_of_gone_and_wait(carry_out(store_, report));
  bool is_urgent = false;
  for (const EvictedUnit& one : report.evicted) is_urgent = is_urgent || one.reason == "min_free";
  sweep_trash(store_, is_base_local_ || is_urgent ? 0 : kTrashKeepSeconds);
  if (!report.evicted.empty()) {
    spdlog::info("gc: {} entries with {} files and {} bytes evicted", report.evicted.size(),
                 report.files, report.bytes);
  }
  if (report.is_over) {
    spdlog::warn("gc: the base is above its limits, but all that is left was used within {} s",
                 options_.gc.min_age.count());
  }
  return report;
}

Result<VerifyReport> Filesystem::verify(bool repair, const VerifyProgress& progress) {
  UniqueFd lock;
  if (repair) {
    CACHESHIM_TRY(taken, store_.try_lock_base());
    lock = std::move(taken);
  }
  CACHESHIM_TRY(report, verify_base(store_, entries_, repair, progress));
  tell_of_gone_and_wait(report.gone);
  for (const DamagedFile& file : report.damaged) {
    spdlog::warn("verify: '{}' is damaged: {}{}", file.path, file.why,
                 repair ? "; its entry goes to trash" : "");
  }
  return report;
}

void Filesystem::tend_store() {
  const unsigned ended =
      end_abandoned_layers(store_.layers(), node_name(), started_, options_.layer_keep.count());
  if (ended > 0) spdlog::info("{} layers that no daemon holds any more were put away", ended);
  sweep_ended_layers(store_.layers(), options_.layer_keep.count());
  if (options_.gc.are_set()) {
    const auto collected = collect_garbage(/*dry_run=*/false);
    if (!collected && !collected.failed_with(EWOULDBLOCK)) {
      spdlog::error("gc: {}; tried again later", std::strerror(collected.error().code()));
    }
  } else {
    sweep_trash(store_, is_base_local_ ? 0 : kTrashKeepSeconds);
  }
}

void Filesystem::tend_store_if_due() {
  const auto now = std::chrono::steady_clock::now();
  const bool is_first = store_tended_ == std::chrono::steady_clock::time_point();
  if (options_.store_dir.empty() || (!is_first && now - store_tended_ < options_.gc_interval))
    return;
  if (tending_.exchange(true)) return;  // still at it
  store_tended_ = now;
  control_.post([this] {
    (void)run_guarded("tending the store", [this] { tend_store(); });
    tending_ = false;
  });
}

}  // namespace cacheshim
