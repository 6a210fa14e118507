// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fuse/vfs/filesystem.h"
#include "store/layer/closing_record.h"
#include "store/sys/sys.h"

// The mount's beginning and end, and what its parts know of each other.
namespace cacheshim {

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
      publishing_({.store = store_,
                   .entries = entries_,
                   .counters = counters_,
                   .nodes = nodes_,
                   .jobs = jobs_,
                   .invalidator = invalidation_,
                   .direct = options_.direct,
                   .layer_keep = options_.layer_keep,
                   .is_awaited = [this] { return single_flight_.any(); },
                   .note_arrival =
                       [this](const Job& job, const std::string& path, const std::string& entry) {
                         single_flight_.note_arrival(job, path, entry);
                       }}),
      keeper_(store_, entries_, counters_, invalidation_,
              {.limits = options_.gc,
               .interval = options_.gc_interval,
               .layer_keep = options_.layer_keep,
               .is_tended = !options_.store_dir.empty(),
               .verifies_on_open = options_.verify_on_open}),
      lowers_{store_.base()},
      is_base_local_(is_local_file_system(store_.base())) {
  if (const auto base = sys::stat_fd(store_.base())) nodes_.add_device(base->st_dev);
  base_locks_.share(store_.base(), &lock_access_, store_.staging());
  if (trust_.is_restricted()) {
    jobs_.restrict_publishing();
    publishing_.publisher().rejected().trust_publishers();
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
  keeper_.set_base_local(is_base_local_);
  Job& job = jobs_.make_plain(std::make_shared<const LowerStack>(lowers));
  if (upper) CACHESHIM_CHECK(job.use_plain_layer(std::move(upper), std::move(work)));
  CACHESHIM_TRY(found, job.overlay.find(""));
  nodes_.forget(jobs_dir_, 1);  // any name in the root may be the overlay's own
  nodes_.make_root_view(&job, found.st, found.in_upper);
  return {};
}

void Filesystem::start(int device) {
  device_ = device;
  invalidation_.start(device_);
  timeouts_.watch(lowers_, options_.watch, is_base_local_);
  const bool sees_all = watch_mode() == WatchMode::kFanotify && is_base_local_;
  if (options_.direct != nullptr && sees_all) options_.direct->changes.begin();
  single_flight_.start(store_, options_.flight_timeout);
  const auto interval =
      std::max<std::chrono::milliseconds>(options_.job_idle / 10, kShortestIdleLook);
  idle_jobs_ = std::make_unique<IdleJobs>(jobs_, options_.job_idle, [this](Job& job) {
    control_.post([this, &job] {
      if (!idle_jobs_->may_end(job)) return;
      (void)publishing_.end_job(job, Outcome::kNone, [](auto, auto) {});
    });
  });
  ticker_ = std::make_unique<Ticker>(interval, [this] {
    idle_jobs_->tick();
    keeper_.tend_if_due(control_);
  });
  batons_.start([this](const Baton& baton) { reap(baton); });
}

void Filesystem::connected(const Protocol& agreed) {
  invalidation_.notifier().set_protocol(agreed.minor);
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
  single_flight_.close();
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
  single_flight_.reopen();
}

void Filesystem::finish_tasks() {
  control_.stop();
  publishing_.stop();
  claim_news_.stop();
  pending_unlinks_.stop();
  invalidation_.stop();
}

void Filesystem::stop() {
  finish_tasks();
  locks_.stop();
  batons_.stop();
  timeouts_.stop();
  ticker_.reset();
  single_flight_.stop();  // after the last of what is published
}

std::uint64_t Filesystem::direct_opens() const {
  std::uint64_t opens = 0;
  for (const Job* job : jobs_.all()) opens += job->filter.counts().opens;
  return opens;
}

}  // namespace cacheshim
