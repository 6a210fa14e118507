// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "store/publish/publish_stage.h"
#include "store/sys/sys.h"

// Publishes all complete units of a layer. Stages new units one by one, and syncs them in batches:
// syncing a batch takes about as long as syncing a single entry.
namespace cacheshim {
namespace {

// A batch ends when it has this many files or units. Each staged unit holds a few descriptors, and no
// unit of a batch is added to the base before the whole batch is synced.
constexpr std::size_t kMostBatchFiles = 16384;
constexpr std::size_t kMostBatchEntries = 1024;

}  // namespace

// Stages a unit that is completely new to the base, ready to be synced. Takes no turn (UnitTurns),
// because a single rename adds the unit to the base. Returns nothing for any other unit, and if
// the unit cannot be staged: the caller then calls publish().
std::optional<Publisher::Stage> Publisher::try_stage_new(const Overlay& overlay,
                                                         const std::string& unit,
                                                         PublishHooks& hooks,
                                                         const IsWanted& is_wanted) {
  if (!hooks.why_refused().empty()) return std::nullopt;
  if (sys::open_beneath(store_.base(), unit, O_PATH | O_NOFOLLOW)) return std::nullopt;
  auto stage = begin_stage(overlay, unit, is_wanted);
  if (!stage || stage->is_group || stage->files.empty()) return std::nullopt;
  const auto agrees = stage_files(*stage, hooks);
  if (!agrees || !*agrees || !stage->is_new || stage->replaces()) return std::nullopt;
  if (!stage->add_digests() || !stage->seal(overlay)) return std::nullopt;
  return *std::move(stage);
}

PublishReport Publisher::publish_batch(Overlay& overlay, std::vector<Stage>& batch,
                                       PublishHooks& hooks, const IsWanted& is_wanted) {
  PublishReport report;
  const Status synced = sync(batch);
  for (const Stage& stage : batch) {
    if (synced && commit(overlay, stage, stage.unit, hooks)) {
      report += account(stage);
      (void)hooks.note_why_unpublished(stage.unit, "");
    } else {
      // publish() tries again, and reports the error if it fails too.
      report += publish(overlay, stage.unit, hooks, is_wanted);
    }
  }
  batch.clear();
  return report;
}

PublishReport Publisher::publish_all(Overlay& overlay, PublishHooks& hooks, bool job_succeeded,
                                     const Progress& progress, const IsWanted& is_wanted) {
  PublishReport report;
  const auto units = units_of(overlay, job_succeeded);
  std::vector<Stage> batch;
  std::size_t files = 0;
  std::uint64_t done = 0;
  const auto flush = [&] {
    report += publish_batch(overlay, batch, hooks, is_wanted);
    files = 0;
  };
  for (const Candidate& candidate : units) {
    if (!is_still_wanted(is_wanted)) break;
    progress(done++, units.size());
    if (!candidate.is_due) {
      ++report.incomplete;
    } else if (auto stage = try_stage_new(overlay, candidate.unit, hooks, is_wanted)) {
      files += stage->files.size();
      batch.push_back(*std::move(stage));
      if (files >= kMostBatchFiles || batch.size() >= kMostBatchEntries) flush();
    } else {
      report += publish(overlay, candidate.unit, hooks, is_wanted);
    }
  }
  flush();
  progress(done, units.size());
  return report;
}

}  // namespace cacheshim
