// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/publishing/publishing.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "store/sys/paths.h"
#include "store/sys/sys.h"
#include "store/threads/guard.h"

namespace cacheshim {
namespace {

// Returns a function that calls `answer` at most once. A request must not be answered twice, and after an exception a
// task cannot know whether it has already answered.
//
// The returned function keeps `holding`, the result of Invalidator::hold(), alive.
std::function<void()> once(std::function<void()> answer, std::shared_ptr<void> holding) {
  auto is_given = std::make_shared<std::atomic<bool>>(false);
  return [is_given = std::move(is_given), answer = std::move(answer),
          holding = std::move(holding)] {
    if (!is_given->exchange(true)) answer();
  };
}

}  // namespace

Publishing::Publishing(const Parts& parts)
    : parts_(parts),
      publisher_(parts.store, parts.entries, parts.counters),
      rejections_(parts.store, parts.entries, parts.nodes, parts.jobs, publisher_, parts.direct),
      room_(parts.space) {}

void Publishing::post(Job& job, std::function<void(Job&)> task) {
  tasks_.post(job.views.owner().value_or(sys::own_uid()),
              [job = job.shared_from_this(), task = std::move(task)] { task(*job); });
}

void Publishing::await(const Job& job, const std::string& path, Waiter waiter) {
  auto holding = parts_.invalidator.hold(waiter.held);
  const Answer answer = once(std::move(waiter.answer), std::move(holding));
  if (!underway_.join(job, path, waiter.held, answer)) answer();
}

void Publishing::completed(Job& job, const std::string& path, Arrival arrival, Waiter waiter) {
  const bool is_wanted = job.policy.wanted() == PublishPolicy::kComplete;
  const bool is_awaited = parts_.is_awaited();
  const std::string entry = is_wanted || is_awaited || job.reads.has_rejected_any()
                                ? publisher_.completed_entry(job.overlay, path, arrival)
                                : std::string();
  const bool is_refused = job.policy.is_refused();
  if (is_wanted && is_refused && !entry.empty()) (void)publisher_.refuse(entry, job.publishing);
  if (entry.empty() || !is_wanted || is_refused) {
    if (!entry.empty()) rejections_.note_unpublished(job, entry);
    if (is_awaited) parts_.note_arrival(job, path, entry);
    return waiter.answer();
  }
  auto charge = charge_for(job);
  if (charge == nullptr) {
    job.pending.postpone(entry);
    if (is_awaited) parts_.note_arrival(job, path, entry);
    return waiter.answer();
  }
  job.unsettled.begin_publishing();
  Underway::Waiters waiters;
  if (!waiter.delays_others) {
    auto holding = parts_.invalidator.hold(waiter.held);
    waiters.answers.push_back(once(waiter.answer, std::move(holding)));
    waiters.held = std::move(waiter.held);
  }
  const auto underway = underway_.begin(job, entry, std::move(waiters));
  if (waiter.delays_others) waiter.answer();
  post(job, [this, entry, charge = std::move(charge), underway](Job& publisher) {
    PublishReport report;
    (void)run_guarded("publishing an entry", [&] { report = publish_entry(publisher, entry); });
    publisher.unsettled.end_publishing();
    Underway::Waiters ended = underway->end();
    const auto answer = [answers = std::move(ended.answers)] {
      for (const Answer& one : answers) one();
    };
    if (!run_guarded("announcing an entry",
                     [&] { parts_.invalidator.published(report, publisher, ended.held, answer); }))
      answer();
  });
}

// Charges the job's user for a publishing task. Returns null if the user has reached the limit.
std::shared_ptr<Charge> Publishing::charge_for(const Job& job) const {
  UserAccount& account = parts_.limits.account(job.views.owner().value_or(0));
  auto charge = Charge::take(&account, Limit::kPublishing);
  return charge ? std::make_shared<Charge>(*std::move(charge)) : nullptr;
}

void Publishing::note_built(Job& job, const std::string& path) {
  if (job.policy.wanted() != PublishPolicy::kComplete) return;
  const auto ref = parts_.entries.find(path);
  if (ref && !ref->rule->built_under.empty()) job.pending.note_built(path);
}

std::vector<std::string> Publishing::take_built(Job& job, std::string_view lock_file) const {
  const std::string_view family = take_component(lock_file);
  return job.pending.take_built([&](const std::string& made) {
    const auto ref = parts_.entries.find(made);
    if (!ref || ref->profile->name != family) return false;
    return ref->rule->is_built_under(lock_file, ref->entry.substr(family.size() + 1));
  });
}

// If a file of an entry is still open for writing, the entry is not published here, and not when the file is closed
// either, because no process holds the lock then. It is published when the job ends successfully.
void Publishing::built(Job& job, std::vector<std::string> paths, std::vector<NodeId> held,
                       Answer answer) {
  if (job.policy.is_refused()) {
    for (const std::string& path : paths) {
      parts_.note_arrival(job, path,
                          publisher_.completed_entry(job.overlay, path, Arrival::kBuilt));
    }
    return answer();
  }
  job.unsettled.begin_publishing();
  auto holding = parts_.invalidator.hold(held);
  post(job, [this, paths = std::move(paths), held = std::move(held),
             answer = once(std::move(answer), std::move(holding))](Job& builder) {
    PublishReport report;
    (void)run_guarded("publishing what was built", [&] {
      for (const std::string& path : paths) {
        const std::string entry = publisher_.completed_entry(builder.overlay, path, Arrival::kBuilt);
        if (entry.empty()) continue;
        if (postpone_if_full(builder, entry)) continue;
        const PublishReport one =
            publisher_.publish(builder.overlay, entry, builder.publishing, [this] { return is_in_time(); });
        if (one.is_full) note_full(builder, entry);
        count(builder, one);
        parts_.note_arrival(builder, path, entry);
        report += one;
      }
    });
    builder.unsettled.end_publishing();
    if (!run_guarded("announcing an entry",
                     [&] { parts_.invalidator.published(report, builder, held, answer); }))
      answer();
  });
}

void Publishing::show_published(Job& job, const std::string& entry, Answer answer) {
  job.unsettled.begin_publishing();
  post(job, [this, entry, answer = once(std::move(answer), nullptr)](Job& reader) {
    PublishReport report;
    (void)run_guarded("giving up copies",
                      [&] { report = publisher_.drop_copies(reader.overlay, entry, reader.publishing); });
    reader.unsettled.end_publishing();
    const auto notify = [&] { parts_.invalidator.uncovered(report, reader, answer); };
    if (report.copies.empty() || !run_guarded("showing an entry", notify)) answer();
  });
}

void Publishing::count(Job& job, const PublishReport& report) {
  job.publishing.count(report);
  if (report.entries > 0) parts_.note_published(job, report);
}

void Publishing::finish_within(std::chrono::seconds time) {
  const auto deadline = (Clock::now() + time).time_since_epoch().count();
  Clock::rep none = Clock::time_point::max().time_since_epoch().count();
  deadline_.compare_exchange_strong(none, deadline);
}

bool Publishing::is_in_time() const {
  return Clock::now().time_since_epoch().count() < deadline_.load(std::memory_order_relaxed);
}

// If the store is full, postpones the entry and returns true. Still notifies the processes that wait for the entry,
// because it is complete in the job's layer.
bool Publishing::postpone_if_full(Job& job, const std::string& entry) {
  if (room_.has_room()) return false;
  note_full(job, entry);
  parts_.note_arrival(job, entry, entry);
  return true;
}

void Publishing::note_full(Job& job, const std::string& entry) {
  room_.note_full();
  job.pending.postpone(entry);
  parts_.on_full();
}

PublishReport Publishing::publish_entry(Job& job, const std::string& entry) {
  if (postpone_if_full(job, entry)) return {};
  PublishReport report =
      publisher_.publish(job.overlay, entry, job.publishing, [this] { return is_in_time(); });
  count(job, report);
  rejections_.note_published(job, entry, report);
  if (report.busy) {
    job.pending.postpone(entry);
  } else {
    if (report.is_full) note_full(job, entry);
    parts_.note_arrival(job, entry, entry);
  }
  return report;
}

EventLoop::Clock::time_point Publishing::resume_if_room() {
  constexpr std::chrono::seconds kInterval{1};
  if (!room_.is_full()) return EventLoop::kNever;
  if (!room_.take_resumption()) return EventLoop::Clock::now() + kInterval;
  for (const auto& job : parts_.jobs.all()) retry_postponed(*job);
  return EventLoop::kNever;
}

void Publishing::retry_postponed(Job& job) {
  if (room_.is_full()) return;  // resume_if_room() retries
  for (const std::string& entry : job.pending.take_postponed()) {
    auto charge = charge_for(job);
    if (charge == nullptr) {
      job.pending.postpone(entry);
      continue;
    }
    job.unsettled.begin_publishing();
    post(job, [this, entry, charge = std::move(charge)](Job& publisher) {
      PublishReport report;
      (void)run_guarded("publishing an entry", [&] { report = publish_entry(publisher, entry); });
      publisher.unsettled.end_publishing();
      parts_.invalidator.published(report, publisher, {}, [] {});
    });
  }
}

PublishReport Publishing::publish_job(Job& job, const Publisher::Progress& progress,
                                      const IsWanted& is_wanted) {
  const PublishReport report =
      publisher_.publish_all(job.overlay, job.publishing, false, progress, is_wanted);
  count(job, report);
  parts_.invalidator.published_and_wait(report, job);
  return report;
}

// Detaches the layer from the job. The job's view then lacks the names that only the layer had.
Publishing::Dropped Publishing::drop_layer(Job& job, Outcome outcome) {
  Invalidator::Done invalidate;
  Dropped dropped;
  {
    const WriterLock lock(job.overlay.mutex());
    if (job.layer) {
      const bool keep = outcome != Outcome::kSuccess && parts_.layer_keep.count() > 0;
      const Status ended = job.layer->end(parts_.store.layers(), outcome, keep);
      if (!ended) {
        spdlog::error("cannot end the layer of job '{}': {}; the next mount takes it up",
                      job.id, std::strerror(ended.error().code()));
      } else if (!keep) {
        dropped.layer = std::move(job.layer);
      }
      job.layer.reset();
      job.overlay.set_layer({}, {});
      job.filter.clear(job.overlay.locks().hidden.directories());
    }
    job.forget_layer();
    invalidate = parts_.invalidator.layer_dropped(job);
    dropped.known = parts_.nodes.names().drop_all(&job, job.view_root);
  }
  invalidate();
  return dropped;
}

// Runs without any lock that other jobs or this job's requests need, because the removal takes a long time if the job
// has created many files.
void Publishing::remove_layer(const Job& job, Dropped dropped) const {
  if (!dropped.layer) return;
  const Status removed =
      dropped.layer->remove(parts_.store.layers(), [this] { return is_in_time(); });
  if (removed || removed.failed_with(ECANCELED)) return;  // if canceled, the next daemon continues
  spdlog::error("cannot remove the layer of job '{}': {}; tried again later", job.id,
                std::strerror(removed.error().code()));
}

PublishReport Publishing::end_job(Job& job, Outcome outcome, const Publisher::Progress& progress) {
  PendingReplies replies;  // the destructor sends them, after the lock below is released
  const MutexLock ending(job.end_mutex);
  PublishReport report;
  if (!job.life.is_active()) return report;
  job.unsettled.wait();
  const bool failed = outcome == Outcome::kFailure;
  if (!failed && job.policy.wanted() != PublishPolicy::kNever) {
    const bool succeeded = outcome == Outcome::kSuccess;
    report = publisher_.publish_all(job.overlay, job.publishing, succeeded, progress,
                                    [this] { return is_in_time(); });
    count(job, report);
    parts_.invalidator.published_and_wait(report, job);
    if (!is_in_time()) {
      spdlog::warn(
          "job '{}' has not ended, because the daemon ends; the next daemon takes its layer over",
          job.id);
      return report;
    }
  }
  parts_.note_ending(job, outcome);
  Dropped dropped = drop_layer(job, outcome);
  replies += job.finish(outcome);
  remove_layer(job, std::move(dropped));
  const JobPublishing::Total total = job.publishing.total();
  spdlog::info(
      "job '{}' ended ({}): {} entries with {} files published, {} of these entries at its end; not "
      "published at its end: {} conflicts, {} incomplete, {} refused",
      job.id, to_string(outcome), total.entries, total.files, report.entries, report.conflicts,
      report.incomplete, report.refused);
  return report;
}

std::uint64_t Publishing::discard_job(Job& job) {
  const MutexLock ending(job.end_mutex);
  Dropped dropped = drop_layer(job, Outcome::kSuccess);
  const std::size_t known = dropped.known;
  remove_layer(job, std::move(dropped));
  return known;
}

}  // namespace cacheshim
