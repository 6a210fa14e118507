// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/counters.h"
#include "common/unique_fd.h"
#include "fuse/nodes/node_table.h"
#include "fuse/requests/interruptible.h"
#include "fuse/requests/pending_replies.h"
#include "fuse/services/single_flight/builder_work.h"
#include "fuse/services/single_flight/failed_builds.h"
#include "store/locks/lease_files.h"
#include "store/sys/mutex.h"
#include "store/sys/process.h"

namespace cacheshim {

// Single flight: one process builds an entry, and the others wait for it.
//
// The first process that misses a name gets its lease, together with the answer that the name is
// absent, and becomes the builder. Other processes wait until their view has the name in a complete
// entry. If the builder has exited, was stopped, or has removed its entry's directory, the process
// that has waited longest becomes the builder. If the builder continues but its build has evidently
// failed, all processes that wait for the name, and all that look it up during kFailedFor, build it
// themselves: their builds will probably fail too. A waiter that has waited for `timeout`, or is
// interrupted, builds the entry itself. From then on a process that builds sees its job's files
// unchanged. The name of an entry that is built elsewhere and renamed into place is handled
// likewise: its placeholder is a directory. Such an entry does not change during its build. So its
// builder is watched as long as it holds the lease: the build has failed when the builder's thread
// has exited, or when it has used no processor for BuilderActivity::kIdleFor. A waiter that has got
// one result and looks up the next one waits a short time for the builder of the first: that
// process has already loaded its compiler, and is late only because its reply came last. A process
// that has waited in this way in vain does not do so again.
//
// A process counts together with its descendants. A process does not wait if that would close a
// cycle, through any number of other processes.
//
// No process waits in a lookup, since the kernel then holds the directory. A waiter's lookup
// returns a placeholder node, and the following request for its attributes, or open, can wait.
// Every such wait ends with ESTALE, so that the kernel looks the name up again and finds the real
// result.
//
// Thread-safe. Call with no lock held; callbacks run with none but where they say so.
class Flights {
 public:
  // The state of a name and its entry in a job's view.
  struct EntryState {
    bool has_name = false;
    // The entry's completing file is in the base. If the profile has no rule for completion: the name exists.
    bool is_complete = false;
    bool is_begun = false;  // the job's layer has the entry's directory
    // Whether the name is one that completes an entry, so that it may still appear in a complete
    // entry.
    bool completes = false;
  };
  struct Options {
    std::chrono::milliseconds timeout;  // 0: no process waits
    LeaseFiles leases;
    // Takes Overlay::mutex().
    std::function<EntryState(const Job& job, const std::string& path)> inspect;
    // Whether a thread of the job builds one by one. Called with the mutex held.
    std::function<void(Job& job, bool builds)> note_building = [](Job&, bool) {};
    // The time, and a builder's work; replaced in tests.
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
    std::function<std::optional<BuilderWork>(pid_t builder, const Process& thread)> work_of =
        cacheshim::work_of;
    // How processes are watched; replaced in tests.
    std::function<UniqueFd(const Process&)> watch = watch_process;
    std::function<bool(const Process&)> is_stopped = cacheshim::is_stopped;
    // False: work happens only in calls of tend_once().
    bool has_thread = true;
  };
  static constexpr std::chrono::seconds kFailedFor{60};
  // Lookups by one call sequence, such as stat(2) and open(2), follow each other within this time.
  static constexpr std::chrono::milliseconds kApproach{20};
  // Each lease holds two descriptors. A process with this number of builds loses its oldest lease
  // without waiters.
  static constexpr std::size_t kMostLed = 64;
  static constexpr std::size_t kMostLeases = 1024;  // further processes build without a lease
  // A request for `path`, a name of the store that its caller misses.
  struct LeaseRequest {
    std::string path;
    Job* job;
    bool publishes;  // all views show its build; otherwise only those of its own job
    Lineage lineage;
    pid_t thread;
    std::string entry = {};  // that `path` belongs to, or is
    // For an entry whose rule has one_by_one: the rule. A thread builds one entry of it at a time.
    const void* rule = nullptr;

    bool is_entry() const { return entry == path; }
  };
  enum class Advice {
    // has got the lease: build, but repeat the lookup first, since the name may just have appeared
    kLead,
    kBuild,  // is the builder, or has waited enough
    kWait,   // return `placeholder`
  };
  struct Answer {
    Advice advice;
    NodeIndex placeholder;  // one lookup of it is counted for the kernel
  };
  // One waiting request. `answer` is called once, by any thread, and never with a lock held.
  class Wait final : public Interruptible {
   public:
    // The request's path is that of the placeholder for which it waits.
    Wait(LeaseRequest request, std::function<void()> answer)
        : answer_(std::move(answer)), request_(std::move(request)) {}
    void interrupt() override;

   private:
    friend class Flights;
    const std::function<void()> answer_;
    std::atomic<bool> interrupted_{false};
    std::atomic<int> wake_event_{-1};
    LeaseRequest request_;
    std::chrono::steady_clock::time_point deadline_;
  };
  // For display: the builder and the number of waiters of each name.
  struct Description {
    std::string path;
    std::string job;  // empty for all
    pid_t leader;     // or the expected builder; 0 for a process of another daemon
    std::size_t waiting;
    std::string leader_job;  // empty for a process of another daemon
    std::vector<std::string> waiting_jobs;
  };

  Flights(Options options, NodeTable& nodes, Counters& counters);
  ~Flights();  // answers the waiters

  Answer look(const LeaseRequest& request) EXCLUDES(mutex_);
  // Delays the answer to a request for a placeholder; answers at once if there is nothing to wait
  // for.
  void wait(NodeIndex placeholder, const std::shared_ptr<Wait>& wait) EXCLUDES(mutex_);
  // Call when the thread has opened an existing name of class `flight`. A thread that builds one by
  // one has thereby given up its builds in other entries.
  void note_open(const LeaseRequest& request) EXCLUDES(mutex_);
  // Call when the builder need not build, because the name existed after all.
  void give_up(const LeaseRequest& request) EXCLUDES(mutex_);
  // Whether any name is being built or waited for.
  bool any() const { return lease_count_ != 0; }
  // A change that the job has just made in the directory `entry`. It shows that the job still
  // builds its names there, or that it has given up.
  enum class Step {
    kTemporary,  // created a file that is not a part of the entry
    kPart,       // created or renamed a part of the entry
    kCleared,    // removed a temporary file: without a part, the build has failed
  };
  void note_step(const Job& job, const std::string& entry, Step step) EXCLUDES(mutex_);
  // Call when the job has finished building `path`, a name or an entry's directory: it is complete,
  // and published if it may be.
  void finished(const Job& job, const std::string& path) EXCLUDES(mutex_);
  std::vector<Description> describe() const;
  // Ends the waits that are over. Blocks up to `timeout` for the exit of a process, or for a
  // change; -1: without a limit. The thread of this object does nothing else.
  void tend_once(std::chrono::milliseconds timeout) EXCLUDES(mutex_);
  // Call before the mount goes away: waiters build the entries themselves, and so does every process until reopen().
  // Returns the replies to the waiters.
  PendingReplies close() EXCLUDES(mutex_);
  void reopen();

 private:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<std::string, const Job*>;  // without a job: for all jobs
  using Waits = std::list<std::shared_ptr<Wait>>;
  struct Lease {
    std::optional<Process> leader;
    bool is_others = false;    // another daemon's: its builder is not known here
    Job* job = nullptr;        // the builder's
    Process thread;
    std::string entry = {};  // of the name, as is the rule: see LeaseRequest
    const void* rule = nullptr;
    bool is_entry = false;
    // For an entry: its builder's work, and the time of the next check in /proc.
    BuilderActivity activity;
    Clock::time_point next_check;
    Clock::time_point since;  // the start of its lease
    // Since the lease began: whether its job has made a file in the entry's directory, and a part
    // of the entry itself.
    bool has_begun = false;
    bool has_part = false;
    int looks = 0;          // lookups by that thread since the lease began
    // The last lookup by that thread since the lease began. Empty if it was waiting when it became
    // the builder: it then looks the name up once more.
    std::optional<Clock::time_point> last_look;
    UniqueFd watched;
    std::uint64_t serial = 0;
    UniqueFd file;
    std::vector<Process> builders;  // in addition to the builder
    Waits waits;
    std::unordered_map<const Job*, NodeIndex> placeholders;
    bool is_to_be_checked = false;
    std::set<const Job*> finished;  // since the last check
    // by the builder's job, and not settled yet: then nothing counts as a failure
    bool is_finished = false;
    // The expected builder, the time until which no other process may build, and the process that
    // waits for it.
    std::optional<Process> expected;
    Clock::time_point expected_until;
    pid_t expecting = 0;
  };
  // A waiter's record of the process that built the entry it waited for.
  struct Follower {
    Process builder;
    Clock::time_point since;  // the time at which it continued
    bool expects = true;
  };
  using Leases = std::map<Key, Lease>;
  // The answers to give once the mutex is released.
  using Answers = std::vector<std::shared_ptr<Wait>>;

  static constexpr std::uint64_t kWakeUpSerial = 0;  // no lease has this serial

  static Process self(const LeaseRequest& request) { return request.lineage.front(); }
  bool only_looks(Lease& lease, const LeaseRequest& request) const REQUIRES(mutex_);
  bool returns_without_a_step(const Lease& lease, const LeaseRequest& request) const
      REQUIRES(mutex_);
  void fail_others_of(const LeaseRequest& request, Answers& answers) REQUIRES(mutex_);
  void fail(Leases::iterator lease, Answers& answers) REQUIRES(mutex_);
  void note_building(Job* job) const REQUIRES(mutex_);
  static bool builds(const Lease& lease, const Lineage& lineage);
  Leases::iterator find(const LeaseRequest& request) REQUIRES(mutex_);
  bool makes_room(const Process& builder, Answers& answers) REQUIRES(mutex_);
  Answer open_lease(const LeaseRequest& request, Answers& answers) REQUIRES(mutex_);
  bool expect_builder(Lease& lease, const LeaseRequest& request) REQUIRES(mutex_);
  bool is_busy(const Process& process) const REQUIRES(mutex_);
  NodeIndex placeholder_of(const Key& key, Lease& lease, Job* job) REQUIRES(mutex_);
  Answer lead(Lease& lease, const Key& key, const LeaseRequest& request, UniqueFd watched,
              Answers& answers) REQUIRES(mutex_);
  bool closes_cycle(const Lineage& caller, const Lease& lease) const REQUIRES(mutex_);
  bool has_just_waited(const LeaseRequest& request) REQUIRES(mutex_);
  void note_builder(const LeaseRequest& request, const Process& builder) REQUIRES(mutex_);
  void hand_over(Leases::iterator lease, Answers& answers) REQUIRES(mutex_);
  void release(Lease& lease, Waits::iterator wait, bool as_builder, Answers& answers)
      REQUIRES(mutex_);
  void erase(Leases::iterator lease, Answers& answers) REQUIRES(mutex_);
  void leader_ended(std::uint64_t serial, Answers& answers) REQUIRES(mutex_);
  static void give(const Answers& answers);

  void run();
  void tend(std::span<const epoll_event> events) EXCLUDES(mutex_);
  void wake() const;
  std::chrono::milliseconds time_to_next_look() const REQUIRES(mutex_);
  void look_after(Answers& answers) REQUIRES(mutex_);
  void try_others_leases() REQUIRES(mutex_);
  void check(Answers& answers) EXCLUDES(mutex_);
  // A builder of an entry, watched with the mutex released.
  struct Watched {
    Key key;
    std::uint64_t serial;
    pid_t builder;
    Process thread;
    std::optional<BuilderWork> work = {};
  };
  std::vector<Watched> take_watched() EXCLUDES(mutex_);
  void check_builders(Answers& answers) EXCLUDES(mutex_);
  bool has_stopped_building(Lease& lease, const BuilderWork& work) const REQUIRES(mutex_);
  bool waits_for_another(const Lease& lease) const REQUIRES(mutex_);
  // The state of a lease, found with the mutex released.
  struct Finding {
    Key key;
    std::set<const Job*> finished;
    std::map<const Job*, EntryState> states;  // of the builder's job and of the waiters'
  };
  std::vector<Finding> take_findings() EXCLUDES(mutex_);
  void settle(const Finding& finding, Answers& answers) EXCLUDES(mutex_);
  static bool releases(const Lease& lease, const Finding& finding, const Job* job);
  static bool is_leader_done(const Lease& lease, const Finding& finding);

  const Options options_;
  NodeTable& nodes_;
  Counters& counters_;
  const UniqueFd events_;  // epoll: builders' pidfds by serial, and wake_event_ by 0
  const UniqueFd wake_event_;
  mutable Mutex mutex_{LockRank::kFlights};
  Leases leases_ GUARDED_BY(mutex_);
  std::atomic<std::size_t> lease_count_{0};
  std::atomic<bool> remembers_failures_{false};
  std::unordered_map<NodeIndex, Key> placeholders_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Key> serials_ GUARDED_BY(mutex_);
  std::uint64_t next_serial_ GUARDED_BY(mutex_) = 1;
  // Threads that have waited for a name and not looked it up since.
  std::unordered_map<pid_t, std::string> waited_ GUARDED_BY(mutex_);
  std::unordered_map<pid_t, Follower> followers_ GUARDED_BY(mutex_);  // by process
  FailedBuilds failed_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cacheshim
