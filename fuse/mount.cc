// SPDX-License-Identifier: Apache-2.0
#include "fuse/mount.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/names.h"
#include "common/used_names.h"
#include "fuse/control/metrics_text.h"
#include "store/layer/closing_record.h"
#include "store/sys/file_system.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::chrono::seconds kShortestIdleInterval{1};
constexpr std::chrono::milliseconds kFirstSearchInterval{100};
constexpr std::chrono::seconds kAnswerDeadline{1};
constexpr std::chrono::seconds kFinishDeadline{10};

// Returns how many of `all` descriptors the daemon reserves for itself, and for files for which no user is charged: the
// lock files of the base (HeldObjects), watches, the store's directories.
std::uint64_t own_descriptors(std::uint64_t all) {
  constexpr std::uint64_t kMostOwn = 2048;
  return std::min(kMostOwn, all / 8);
}

UserLimits::Options limit_options(const MountOptions& options) {
  UserLimits::Options limits{.most = options.limits, .own_uid = sys::own_uid()};
  if (options.store_dir.empty()) return limits;  // a plain overlay
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    value_of(limits.capacities, Limit::kHandles) =
        descriptors.rlim_cur - own_descriptors(descriptors.rlim_cur);
  }
  value_of(limits.capacities, Limit::kLeases) = LeaseTable::kMostLeases;
  return limits;
}

std::optional<sys::RenameSupport> renames_in(int directory) {
  const auto support = sys::probe_renames(directory);
  return support ? std::optional(*support) : std::nullopt;
}

}  // namespace

Mount::Mount(const Store& the_store, const std::vector<Profile>& profiles,
             MountOptions mount_options)
    : store(the_store),
      options(std::move(mount_options)),
      entries(profiles),
      started(std::time(nullptr)),
      base_renames(renames_in(store.staging())),
      layer_renames(renames_in(store.layers())),
      limits(limit_options(options)),
      lock_access(options.allow),
      trust(options.allow),
      jobs_dir(nodes.intern_own(kRootNode, std::string(kJobsName), NodeKind::kJobsDir)),
      jobs(store, entries, counters, nodes, jobs_dir, options.publish, options.owners,
           options.direct),
      publishing({.store = store,
                  .entries = entries,
                  .counters = counters,
                  .nodes = nodes,
                  .jobs = jobs,
                  .invalidator = invalidation,
                  .direct = options.direct,
                  .layer_keep = options.layer_keep,
                  .limits = limits,
                  .space = store_space,
                  .on_full = [this] { resuming_.wake(); },
                  .is_awaited = [this] { return single_flight.any(); },
                  .note_arrival =
                      [this](const Job& job, const std::string& path, const std::string& entry) {
                        single_flight.note_arrival(job, path, entry);
                      },
                  .note_published = std::bind_front(&Mount::note_published, this),
                  .note_ending = std::bind_front(&Mount::note_ending, this)}),
      keeper(store, entries, counters, invalidation,
             {.limits = options.gc,
              .interval = options.gc_interval,
              .layer_keep = options.layer_keep,
              .is_tended = !options.store_dir.empty(),
              .verifies_on_open = options.verify_on_open}),
      lowers_{store.base()},
      is_base_local_(is_local_file_system(store.base())),
      is_layer_local_(is_local_file_system(store.layers())) {
  if (const auto base = sys::stat_fd(store.base())) nodes.objects().add_device(base->st_dev);
  base_locks.directory.share(store.base(), &lock_access, store.staging());
  if (trust.is_restricted()) {
    jobs.restrict_publishing();
    publishing.publisher().rejected().trust_publishers();
  }
  if (options.open_files) publishing.publisher().open_all_files();
  jobs.set_lock_access(lock_access);
  jobs.set_quota(quota_);
  jobs.set_invalidator(invalidation);
  jobs.set_on_many([this] { ended_jobs.request(); });
  jobs.adopt_orphans();
}

Mount::~Mount() { stop(); }

Status Mount::show_plain(const std::vector<int>& lowers, UniqueFd upper, UniqueFd work) {
  lowers_ = lowers;
  // The order must be the same at each start, because inode numbers depend on it.
  std::vector<int> all = lowers;
  if (upper) all.push_back(upper.get());
  for (const int directory : all) {
    if (const auto st = sys::stat_fd(directory)) nodes.objects().add_device(st->st_dev);
  }
  is_base_local_ = std::all_of(lowers.begin(), lowers.end(), is_local_file_system);
  is_layer_local_ = upper && is_local_file_system(upper.get());
  keeper.set_base_local(is_base_local_);
  Job& job = jobs.make_plain(std::make_shared<const LowerStack>(lowers));
  const WriterLock lock(job.overlay.mutex());
  if (upper) CACHESHIM_CHECK(job.use_plain_layer(std::move(upper), std::move(work)));
  CACHESHIM_TRY(found, job.overlay.find(""));
  nodes.forget(jobs_dir, 1);  // the overlay itself may contain a file named .jobs
  nodes.objects().make_root_view(&job, found.st, found.in_upper);
  return {};
}

void Mount::start(int device, std::function<void(const Baton&)> reap) {
  device_ = device;
  invalidation.start(device, prompt_loop);
  timeouts.watch(prompt_loop, lowers_, options.watch, is_base_local_);
  const bool sees_all = timeouts.watch_mode() == WatchMode::kFanotify && is_base_local_;
  if (options.direct != nullptr && sees_all) options.direct->changes.begin();
  remote = make_remote_entries(
      prompt_loop, options.remote, options.remote_helper,
      {.store = store,
       .entries = entries,
       .counters = counters,
       .publisher = publishing.publisher(),
       .longest_wait = options.flight_timeout,
       .on_added = [this](const std::vector<std::string>& paths) { invalidation.added(paths); }});
  const auto publishers = [this](const std::string& entry) {
    return publishing.underway().publishers(entry);
  };
  single_flight.start(loop, store, options.flight_timeout, publishers, remote.get());
  idle_jobs_ = std::make_unique<IdleJobs>(jobs, options.job_idle, [this](Job& job) {
    tasks.post(job.views.owner().value_or(sys::own_uid()), [this, job = job.shared_from_this()] {
      if (!idle_jobs_->may_end(*job)) return;
      (void)publishing.end_job(*job, Outcome::kNone, [](auto, auto) {});
    });
  });
  next_tending_ = EventLoop::Clock::now() + idle_interval();
  tending_.wake();
  batons.start(loop, std::move(reap));
  if (options.metrics) {
    metrics = std::make_unique<MetricsListener>(
        loop, MetricsListener::Options{.settings = options.metrics,
                                       .helper = options.metrics_helper,
                                       .text = [this] { return metrics_of(*this); }});
    metrics->start();
  }
  prompt_loop.start();
  loop.start();
  // Waits, so that the first jobs already find the entries of other machines.
  if (remote) remote->await_first_answer(options.remote.wait);
}

std::chrono::milliseconds Mount::idle_interval() const {
  return std::max<std::chrono::milliseconds>(options.job_idle / 10, kShortestIdleInterval);
}

// Ends idle jobs, and maintains the store. Returns the time of the next call.
EventLoop::Clock::time_point Mount::tend() {
  const auto now = EventLoop::Clock::now();
  if (now < next_tending_) return next_tending_;
  next_tending_ = now + idle_interval();
  keeper.tend_if_due(tasks);
  idle_jobs_->tick();
  // A search for processes usually ends soon but may hang for a long time, so the interval between the checks for its
  // end doubles.
  search_interval_ = std::clamp(2 * search_interval_, kFirstSearchInterval, idle_interval());
  if (idle_jobs_->is_searching()) return next_tending_ = now + search_interval_;
  search_interval_ = {};
  return next_tending_;
}

void Mount::connected(const Protocol& agreed) {
  invalidation.notifier().set_protocol(agreed.minor);
  // Enables passthrough only if the layers are on a local file system: the kernel also accepts backing files on a FUSE
  // file system, but some writes to such files then fail with EIO.
  if (agreed.can_pass_through && is_layer_local_) io_modes.enable(device_);
  uses_io_uring_ = agreed.uses_io_uring;
}

PendingReplies Mount::end_waits() {
  const Status recorded =
      options.cycle.empty() ? Status() : record_closing(options.run_dir, options.cycle);
  if (!recorded) {
    spdlog::warn(
        "cannot record in '{}' that this mount is closed: {}; a standby would mount it again",
        options.run_dir, std::strerror(recorded.error().code()));
  }
  is_closing_ = true;
  PendingReplies replies = locks.close();
  replies += single_flight.close();
  for (const auto& job : jobs.all()) replies += job->life.end_waits();
  return replies;
}

void Mount::fail_waits() {
  PendingReplies replies;
  {
    const MutexLock lock(closing_mutex_);
    is_closed_for_good_ = true;
    replies += end_waits();
  }
  replies.give();
  ticker.wait_until_answered(kAnswerDeadline);
}

void Mount::close_waits_for(std::chrono::seconds time) {
  PendingReplies replies;
  {
    const MutexLock lock(closing_mutex_);
    replies += end_waits();
    reopen_at_ = EventLoop::Clock::now() + time;
  }
  reopening_.wake();
  replies.give();
  ticker.wait_until_answered(kAnswerDeadline);
}

EventLoop::Clock::time_point Mount::reopen_if_due() {
  const MutexLock lock(closing_mutex_);
  if (EventLoop::Clock::now() < reopen_at_) return reopen_at_;
  allow_waits();
  return EventLoop::kNever;
}

void Mount::reopen_waits() {
  const MutexLock lock(closing_mutex_);
  allow_waits();
}

void Mount::allow_waits() {
  reopen_at_ = EventLoop::kNever;
  if (is_closed_for_good_ || !is_closing_) return;
  forget_closing(options.run_dir);
  is_closing_ = false;
  locks.reopen();
  single_flight.reopen();
}

void Mount::finish_tasks() {
  publishing.finish_within(kFinishDeadline);
  upkeep.stop();
  keeper.stop_sweeping();
  tasks.stop();
  publishing.stop();
  if (remote) remote->finish_within(kFinishDeadline);
  claim_invalidation.stop();
  invalidation.stop();
}

void Mount::stop() {
  finish_tasks();
  if (metrics) metrics->stop();
  loop.stop();
  prompt_loop.stop();
  locks.close().give();
  batons.stop();
  timeouts.stop();
  ticker.stop();
  single_flight.stop();  // after the last publishing, because publishing reports to single_flight
  remote.reset();
}

void Mount::note_published(Job& job, const PublishReport& report) const {
  single_flight.note_published(job);
  if (!remote) return;
  std::set<std::string> units;
  for (const std::string& path : report.paths) {
    if (const auto ref = entries.find(path)) units.insert(ref->unit());
  }
  for (const std::string& unit : units) job.filter.note_use(unit);
  remote->note_published({units.begin(), units.end()});
}

void Mount::note_ending(Job& job, Outcome outcome) const {
  const auto pack = job.pack.exchange(nullptr);
  auto used = job.filter.take_uses();
  if (pack == nullptr || !pack->is_known || used.empty() || !job.policy.may_publish()) return;
  remote->push_pack(
      *pack,
      [used = std::move(used)](std::string_view path) { return is_marked_used(used.data(), path); },
      outcome == Outcome::kSuccess);
}

// With io_uring, `is_releasing` always returns true: a RELEASE may wait in the queue of any core without the daemon's
// knowledge.
LockSystem Mount::lock_system() {
  LockSystem system = LockSystem::real();
  system.is_releasing = [this] { return uses_io_uring_ || releases > 0; };
  return system;
}

PendingUnlinks::Invalidate Mount::name_invalidation() {
  return [this](Notification name, std::function<void(bool)> done) {
    invalidation.notifier().invalidate_name(std::move(name), std::move(done));
  };
}

}  // namespace cacheshim
