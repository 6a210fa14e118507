// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include "fuse/vfs/filesystem.h"
#include "store/layer/closing_record.h"
#include "store/sys/guard.h"
#include "store/sys/sys.h"

// Publishing and the ends of jobs, as the mount sees them: what sets them off, who is told, and who
// waits for it. The work itself is done by tasks, never by a worker of the receive loop.
namespace cacheshim {
namespace {

// An answer that is given at most once. A task that throws cannot know whether it has answered, and a request
// must not be answered twice.
std::function<void()> once(std::function<void()> answer) {
  auto is_given = std::make_shared<std::atomic<bool>>(false);
  return [is_given = std::move(is_given), answer = std::move(answer)] {
    if (!is_given->exchange(true)) answer();
  };
}

}  // namespace

Filesystem::Filesystem(const Store& store, const std::vector<Profile>& profiles,
                       FilesystemOptions options)
    : store_(store),
      options_(std::move(options)),
      entries_(profiles),
      started_(std::time(nullptr)),
      lock_access_(options_.allow),
      trust_(options_.allow),
      jobs_dir_(nodes_.intern_own(kRootNode, std::string(kJobsName), NodeKind::kJobsDir)),
      jobs_(store_, entries_, counters_, nodes_, jobs_dir_, options_.publish, options_.owners,
            options_.direct),
      publisher_(store_, entries_, counters_),
      rejections_(store_, entries_, nodes_, jobs_, publisher_, options_.direct),
      publishing_(kPublishingThreads),
      control_(kControlThreads),
      claims_(kClaimThreads),
      lowers_{store_.base()},
      is_base_local_(is_local_file_system(store_.base())) {
  if (const auto base = sys::stat_fd(store_.base())) nodes_.add_device(base->st_dev);
  base_locks_.share(store_.base(), &lock_access_, store_.staging());
  locks_.set_idle_hook([this](const LockFileId& id) { return finish_removal(id); });
  if (options_.verify_on_open) verifier_ = std::make_unique<OpenVerifier>(store_, entries_);
  if (trust_.is_restricted()) {
    jobs_.restrict_publishing();
    publisher_.rejected().trust_publishers();
  }
  jobs_.set_lock_access(lock_access_);
  jobs_.adopt_orphans();
}

Filesystem::~Filesystem() { stop(); }

Status Filesystem::show_plain(const std::vector<int>& lowers, UniqueFd upper, UniqueFd work) {
  lowers_ = lowers;
  // In the same order at each mount: inode numbers depend on it.
  std::vector<int> all = lowers;
  if (upper) all.push_back(upper.get());
  for (const int folder : all) {
    if (const auto st = sys::stat_fd(folder)) nodes_.add_device(st->st_dev);
  }
  is_base_local_ = std::all_of(lowers.begin(), lowers.end(), is_local_file_system);
  Job& job = jobs_.make_plain(std::make_shared<const LowerStack>(lowers));
  if (upper) CACHESHIM_CHECK(job.use_plain_layer(std::move(upper), std::move(work)));
  CACHESHIM_TRY(found, job.overlay.find(""));
  nodes_.forget(jobs_dir_, 1);  // any name in the root may be the overlay's own
  nodes_.make_root_view(&job, found.st, found.in_upper);
  return {};
}

void Filesystem::start(int device) {
  device_ = device;
  notifier_ = std::make_unique<Notifier>(device_);
  watch_ = BaseWatch::start(lowers_, options_.watch,
                            [this](const auto& changes) { base_changed(changes); });
  const bool sees_all = watch_->mode() == WatchMode::kFanotify && is_base_local_;
  if (options_.direct != nullptr && sees_all) options_.direct->changes.begin();
  if (options_.flight_timeout.count() > 0) {
    const auto inspect = [this](const Job& job, const std::string& path) {
      return inspect_flight(job, path);
    };
    flights_ = std::make_unique<Flights>(
        Flights::Options{options_.flight_timeout, LeaseFiles(store_.leases()), inspect,
                         [](Job& job, bool builds) { job.filter.set_building(builds); }},
        nodes_, counters_);
  }
  const auto interval =
      std::max<std::chrono::milliseconds>(options_.job_idle / 10, kShortestIdleLook);
  idle_jobs_ = std::make_unique<IdleJobs>(jobs_, options_.job_idle, [this](Job& job) {
    control_.post([this, &job] {
      if (idle_jobs_->may_end(job)) (void)end_job(job, Outcome::kNone, [](auto, auto) {});
    });
  });
  ticker_ = std::make_unique<Ticker>(interval, [this] {
    idle_jobs_->tick();
    tend_store_if_due();
  });
  batons_ = std::make_unique<Batons>([this](const Baton& baton) { reap(baton); });
  watch_left_batons();
}

void Filesystem::connected(const Protocol& agreed) {
  notifier_->set_protocol(agreed.minor);
  if (agreed.can_pass_through) io_modes_.enable(device_);
  is_asked_by_rings_ = agreed.is_by_rings;
}

void Filesystem::refuse_waits() {
  const Status recorded =
      options_.cycle.empty() ? Status() : record_closing(options_.run_dir, options_.cycle);
  if (!recorded) {
    spdlog::warn(
        "cannot record in '{}' that this mount is closed: {}; a standby would mount it again",
        options_.run_dir, std::strerror(recorded.error().code()));
  }
  is_closing_ = true;
  locks_.close();
  if (flights_) flights_->close();
  for (Job* job : jobs_.all()) job->refuse_waits();
}

void Filesystem::close_waits() {
  {
    const std::lock_guard lock(closing_mutex_);
    is_closed_for_good_ = true;
    refuse_waits();
  }
  if (ticker_) ticker_->wait_until_answered(kAnswerDeadline);
}

void Filesystem::close_waits_for(std::chrono::seconds time) {
  {
    const std::lock_guard lock(closing_mutex_);
    refuse_waits();
  }
  ticker_->call_at(std::chrono::steady_clock::now() + time, [this] { reopen_waits(); });
  ticker_->wait_until_answered(kAnswerDeadline);
}

void Filesystem::reopen_waits() {
  const std::lock_guard lock(closing_mutex_);
  if (is_closed_for_good_ || !is_closing_) return;
  forget_closing(options_.run_dir);
  is_closing_ = false;
  locks_.reopen();
  if (flights_) flights_->reopen();
}

void Filesystem::finish_tasks() {
  control_.stop();
  publishing_.stop();
  claims_.stop();
  pending_unlinks_.stop();
  if (notifier_) notifier_->stop();
}

void Filesystem::stop() {
  finish_tasks();
  locks_.stop();
  batons_.reset();
  watch_.reset();
  ticker_.reset();
  flights_.reset();  // told of what was published until then
  notifier_.reset();
}

// Tells the other views, then answers, then tells the publisher's own view, whose folder the request
// may hold until it is answered.
void Filesystem::tell_of(const PublishReport& report, const Job& publisher,
                         std::vector<Notifier::FolderId> held, std::function<void()> answer) {
  notifier_->post(notices_of(report, &publisher), std::move(held), std::move(answer));
  notifier_->post(notices_of_uncovered(report, publisher), {}, [] {});
}

void Filesystem::publish_completed(Job& job, const std::string& path, Arrival arrival,
                                   std::vector<Notifier::FolderId> held,
                                   std::function<void()> answer) {
  const bool is_wanted = job.wanted_policy() == PublishPolicy::kComplete;
  const bool is_awaited = flights_ && flights_->any();
  const std::string entry = is_wanted || is_awaited || job.reads.has_rejected_any()
                                ? publisher_.completed_entry(job.overlay, path, arrival)
                                : std::string();
  const bool is_refused = job.is_refused();
  if (is_wanted && is_refused && !entry.empty()) (void)publisher_.refuse(entry, job);
  if (entry.empty() || !is_wanted || is_refused) {
    if (!entry.empty()) rejections_.note_unpublished(job, entry);
    if (is_awaited) note_arrival(job, path, entry);
    return answer();
  }
  job.begin_publishing();
  publishing_.post([this, &job, entry, held = std::move(held), answer = once(std::move(answer))] {
    PublishReport report;
    (void)run_guarded("publishing an entry", [&] { report = publish_entry(job, entry); });
    job.end_publishing();
    if (!run_guarded("telling of it", [&] { tell_of(report, job, held, answer); })) answer();
  });
}

void Filesystem::note_built(Job& job, const std::string& path) {
  if (job.wanted_policy() != PublishPolicy::kComplete) return;
  const auto ref = entries_.find(path);
  if (ref && !ref->rule->built_under.empty()) job.note_built(path);
}

// What is still open for writing is not tried again at its close, when nobody has it locked: it is left for
// the job's success.
void Filesystem::publish_built(Job& job, std::vector<std::string> paths,
                               std::vector<Notifier::FolderId> held, std::function<void()> answer) {
  if (job.is_refused()) {
    for (const std::string& path : paths) {
      note_arrival(job, path, publisher_.completed_entry(job.overlay, path, Arrival::kBuilt));
    }
    return answer();
  }
  job.begin_publishing();
  publishing_.post([this, &job, paths = std::move(paths), held = std::move(held),
                    answer = once(std::move(answer))] {
    PublishReport report;
    (void)run_guarded("publishing what was built", [&] {
      for (const std::string& path : paths) {
        const std::string entry = publisher_.completed_entry(job.overlay, path, Arrival::kBuilt);
        if (entry.empty()) continue;
        const PublishReport one = publisher_.publish(job.overlay, entry, job);
        job.count_published(one);
        if (flights_) flights_->finished(job, entry);
        report += one;
      }
    });
    job.end_publishing();
    if (!run_guarded("telling of it", [&] { tell_of(report, job, held, answer); })) answer();
  });
}

// Lets the base's part of `entry` show where the job has only copies of it, then answers.
void Filesystem::show_published(Job& job, const std::string& entry, std::function<void()> answer) {
  job.begin_publishing();
  publishing_.post([this, &job, entry, answer = once(std::move(answer))] {
    PublishReport report;
    (void)run_guarded("giving up copies",
                      [&] { report = publisher_.drop_copies(job.overlay, entry, job); });
    job.end_publishing();
    const auto notify = [&] { notifier_->post(notices_of_uncovered(report, job), {}, answer); };
    if (report.copies.empty() || !run_guarded("telling of it", notify)) answer();
  });
}

PublishReport Filesystem::publish_entry(Job& job, const std::string& entry) {
  PublishReport report = publisher_.publish(job.overlay, entry, job);
  job.count_published(report);
  rejections_.note_published(job, entry, report);
  if (report.busy) {
    job.postpone(entry);
  } else if (flights_) {
    flights_->finished(job, entry);
  }
  return report;
}

void Filesystem::retry_postponed(Job& job) {
  for (const std::string& entry : job.take_postponed()) {
    job.begin_publishing();
    publishing_.post([this, &job, entry] {
      PublishReport report;
      (void)run_guarded("publishing an entry", [&] { report = publish_entry(job, entry); });
      job.end_publishing();
      tell_of(report, job, {}, [] {});
    });
  }
}

// Returns when the kernel has been told.
void Filesystem::notify_and_wait(std::vector<Notifier::Notice> notices) {
  auto told = std::make_shared<std::promise<void>>();
  auto future = told->get_future();
  notifier_->post(std::move(notices), {}, [told] { told->set_value(); });
  future.wait();
}

PublishReport Filesystem::publish_job(Job& job, const Publisher::Progress& progress) {
  const PublishReport report = publisher_.publish_all(job.overlay, job, false, progress);
  job.count_published(report);
  notify_and_wait(notices_of(report, &job));
  return report;
}

std::vector<UnitPlan> Filesystem::plan_publishing(Job& job, const Publisher::Progress& progress) {
  return publisher_.plan_all(job.overlay, job, false, progress);
}

// The layer goes, and with it all names that only it had. Returns how many the kernel knew.
std::size_t Filesystem::drop_layer(Job& job, Outcome outcome) {
  std::vector<Notifier::Notice> notices;
  std::size_t known = 0;
  {
    const std::unique_lock lock(job.overlay.mutex());
    if (job.layer) {
      const bool keep = outcome != Outcome::kSuccess && options_.layer_keep.count() > 0;
      const Status ended = job.layer->end(store_.layers(), outcome, keep);
      if (!ended) {
        spdlog::error("cannot put away the layer of job '{}': {}; the next mount takes it up",
                      job.id, std::strerror(ended.error().code()));
      }
      job.layer.reset();
      job.overlay.set_layer({}, {});
      job.filter.clear(job.overlay.hidden_lock_folders());
    }
    job.forget_layer();
    // What is kept of names that the layer hid is not known here.
    notices.push_back({0, {}, Notifier::Notice::Kind::kEpoch});
    add_notices_of_all(job, notices);
    known = nodes_.drop_all(&job, job.view_root);
  }
  notify_and_wait(std::move(notices));
  return known;
}

PublishReport Filesystem::end_job(Job& job, Outcome outcome, const Publisher::Progress& progress) {
  const std::lock_guard ending(job.end_mutex);
  PublishReport report;
  if (!job.is_active()) return report;
  job.wait_until_settled();
  const bool failed = outcome == Outcome::kFailure;
  if (!failed && job.wanted_policy() != PublishPolicy::kNever) {
    const bool succeeded = outcome == Outcome::kSuccess;
    report = publisher_.publish_all(job.overlay, job, succeeded, progress);
    job.count_published(report);
    notify_and_wait(notices_of(report, &job));
  }
  (void)drop_layer(job, outcome);
  job.finish(outcome);
  const Job::Published total = job.published_so_far();
  spdlog::info(
      "job '{}' ended ({}): {} entries with {} files published, {} of these entries at its end; not "
      "published at its end: {} conflicts, {} incomplete, {} refused",
      job.id, to_string(outcome), total.entries, total.files, report.entries, report.conflicts,
      report.incomplete, report.refused);
  return report;
}

std::uint64_t Filesystem::discard_job(Job& job) {
  const std::lock_guard ending(job.end_mutex);
  return drop_layer(job, Outcome::kSuccess);
}

std::uint64_t Filesystem::direct_opens() const {
  std::uint64_t opens = 0;
  for (const Job* job : jobs_.all()) opens += job->filter.counts().opens;
  return opens;
}

}  // namespace cacheshim
