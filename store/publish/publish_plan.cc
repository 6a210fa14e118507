// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "store/publish/publish_stage.h"

// Plans publishing: stages each unit and compares it with the base, then discards the stage.
namespace cacheshim {
namespace {

std::string rule_text(const EntryRule& rule) {
  std::vector<std::string> patterns = rule.complete;
  patterns.insert(patterns.end(), rule.complete_single.begin(), rule.complete_single.end());
  if (patterns.empty()) return "all of its files, renamed into place";
  return fmt::format("a file named {}{}", fmt::join(patterns, " or "),
                     rule.renamed ? ", renamed into place" : "");
}

}  // namespace

std::string Publisher::why_not_due(const Overlay& overlay, const EntryRef& ref,
                                   bool job_succeeded) const {
  if (!ref.profile->may_publish_early()) {
    return job_succeeded ? "" : "the profile is a guess: published if the job succeeds";
  }
  if (!ref.rule->says_when_complete()) {
    return job_succeeded ? ""
                         : fmt::format("{} its entry is complete: published if the job succeeds",
                                       ref.rule->built_under.empty() ? "nothing shows when"
                                                                     : "no lock has shown that");
  }
  const ReaderLock lock(overlay.mutex());
  if (overlay.has_layer() && is_complete(overlay, ref, job_succeeded)) return "";
  return fmt::format("its entry is not complete: it is completed by {}", rule_text(*ref.rule));
}

Result<UnitPlan> Publisher::try_plan(Overlay& overlay, const std::string& unit, PublishHooks& hooks,
                                     const IsWanted& is_wanted) {
  CACHESHIM_TRY(stage, begin_stage(overlay, unit, is_wanted));
  CACHESHIM_TRY(agrees_with_base, stage_files(stage, hooks));
  UnitPlan plan{unit, 0, 0, ""};
  if (!agrees_with_base) {
    plan.why_kept = kOtherVersion;
    return plan;
  }
  for (const StagedFile& file : stage.files) {
    if (file.in_base) continue;
    ++plan.files;
    plan.bytes += static_cast<std::uint64_t>(file.source.st_size);
  }
  return plan;
}

UnitPlan Publisher::plan(Overlay& overlay, const Candidate& candidate, PublishHooks& hooks,
                         const IsWanted& is_wanted) {
  const auto kept = [&](std::string why) { return UnitPlan{candidate.unit, 0, 0, std::move(why)}; };
  if (const std::string why = hooks.why_refused(); !why.empty()) {
    return kept("the job may not publish: " + why);
  }
  if (!candidate.is_due) {
    const auto ref = entries_.find(candidate.unit);
    if (!ref) return kept("it belongs to no entry of a known cache: published if the job succeeds");
    std::string why = why_not_due(overlay, *ref, false);
    return kept(why.empty() ? "it has become complete just now" : std::move(why));
  }
  const auto staging = staging_lock(overlay, candidate.unit);
  const MutexLock lock(*staging);
  auto planned = try_plan(overlay, candidate.unit, hooks, is_wanted);
  return planned ? *std::move(planned) : kept(why_kept(planned.error()));
}

std::vector<UnitPlan> Publisher::plan_all(Overlay& overlay, PublishHooks& hooks, bool job_succeeded,
                                          const Progress& progress, const IsWanted& is_wanted) {
  std::vector<UnitPlan> plans;
  const auto units = units_of(overlay, job_succeeded);
  for (const Candidate& candidate : units) {
    if (!is_still_wanted(is_wanted)) break;
    progress(plans.size(), units.size());
    plans.push_back(plan(overlay, candidate, hooks, is_wanted));
  }
  return plans;
}

}  // namespace cacheshim
