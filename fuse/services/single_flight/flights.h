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

// Single flight: one process builds what the others wait for.
//
// The first process that misses a name gets its lease and with it the answer that the name is not
// there; it is the leader, and goes on to build. Others wait until their view has the name in a complete
// entry. If the leader has ended, was stopped, or has removed its entry's directory, the process that has
// waited longest leads. If the leader goes on but its build has evidently failed, all who wait for the name, and
// all who come for it during kFailedFor, build for themselves: they will probably fail too. A waiter that has waited
// for `timeout`, or is interrupted, builds for itself. A
// process that builds sees its job's files as they are from then on.
// The name of an entry that is built elsewhere, and gets its place by a rename, is such a name too: its placeholder is a
// directory. Such an entry shows nothing of its build. So its builder is watched for as long as it leads: it has failed
// when its thread has ended, or when it has used no processor for BuilderActivity::kIdleFor.
// Those who have got one result, and come for the next one, wait a moment for who has built the first: it
// has loaded its compiler already, and is behind them only because it is answered after them. A process
// that has waited so for nobody does it no more.
//
// A process counts together with its descendants. One that would wait for somebody who waits for it,
// by any number of others between, is not made to wait.
//
// Nobody waits in a look-up, since the kernel holds the folder then: who is to wait is shown a
// placeholder, a node that is asked for its attributes or opened next, which can wait. However that
// ends it is answered by ESTALE, so that the kernel looks the name up again and finds the truth.
//
// Thread-safe. Call with no lock held; callbacks run with none but where they say so.
class Flights {
 public:
  // What a job's view has of a name and its entry.
  struct EntryState {
    bool has_name = false;
    // The entry's completing file is in the base. If the profile has no rule for completion: the name exists.
    bool is_complete = false;
    bool is_begun = false;  // the job's layer has the entry's directory
    // Whether the name is one that completes an entry, so that a complete entry may still get it.
    bool completes = false;
  };
  struct Options {
    std::chrono::milliseconds timeout;  // 0: nobody waits for anybody
    LeaseFiles leases;
    // Takes Overlay::mutex().
    std::function<EntryState(const Job& job, const std::string& path)> inspect;
    // Whether a thread of the job builds one by one. Called with the mutex held.
    std::function<void(Job& job, bool builds)> note_building = [](Job&, bool) {};
    // The time, and what a builder has done, for tests.
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
    std::function<std::optional<BuilderWork>(pid_t builder, const Process& thread)> work_of =
        cacheshim::work_of;
    // How processes are watched, for tests too.
    std::function<UniqueFd(const Process&)> watch = watch_process;
    std::function<bool(const Process&)> is_stopped = cacheshim::is_stopped;
    // False: nothing happens between the calls of tend_once().
    bool has_thread = true;
  };
  static constexpr std::chrono::seconds kFailedFor{60};
  // Looks of one approach come sooner than this: stat(2) and open(2), say.
  static constexpr std::chrono::milliseconds kApproach{20};
  // Each lease holds two descriptors. A process that leads as many builds loses its oldest lease that nobody waits for.
  static constexpr std::size_t kMostLed = 64;
  static constexpr std::size_t kMostLeases = 1024;  // further processes build without one
  // Whoever misses `path`, a name of the store.
  struct Seeker {
    std::string path;
    Job* job;
    bool publishes;  // what it builds shows in all views; else in its own job's
    Lineage lineage;
    pid_t thread;
    std::string entry = {};  // that `path` belongs to, or is
    // For an entry whose rule has one_by_one: the rule. A thread builds one entry of it at a time.
    const void* rule = nullptr;

    bool is_entry() const { return entry == path; }
  };
  enum class Advice {
    kLead,   // has got the lease: build, but look again first, since it may have been free just now
    kBuild,  // is its leader, or one who has waited enough
    kWait,   // show `placeholder`
  };
  struct Answer {
    Advice advice;
    NodeIndex placeholder;  // one look-up of it is counted for the kernel
  };
  // One request that waits. `answer` is called once, by any thread, and never with a lock held.
  class Wait final : public Interruptible {
   public:
    // The seeker's path is that of the placeholder which it waits for.
    Wait(Seeker seeker, std::function<void()> answer)
        : answer_(std::move(answer)), seeker_(std::move(seeker)) {}
    void interrupt() override;

   private:
    friend class Flights;
    const std::function<void()> answer_;
    std::atomic<bool> interrupted_{false};
    std::atomic<int> wake_event_{-1};
    Seeker seeker_;
    std::chrono::steady_clock::time_point deadline_;
  };
  // For people: who leads and how many wait, at each name.
  struct Description {
    std::string path;
    std::string job;  // empty for all
    pid_t leader;     // or who is expected to lead; 0 for one of another daemon
    std::size_t waiting;
    std::string leader_job;  // empty for one of another daemon
    std::vector<std::string> waiting_jobs;
  };

  Flights(Options options, NodeTable& nodes, Counters& counters);
  ~Flights();  // answers those who wait

  Answer look(const Seeker& seeker) EXCLUDES(mutex_);
  // Holds a request for a placeholder back; answers at once where there is nothing to wait for.
  void wait(NodeIndex placeholder, const std::shared_ptr<Wait>& wait) EXCLUDES(mutex_);
  // The thread has opened a name of class `flight` that is there. A thread that builds one by one has given up what it
  // builds in other entries.
  void note_open(const Seeker& seeker) EXCLUDES(mutex_);
  // The leader of this process has no need to build: the name was there after all.
  void give_up(const Seeker& seeker) EXCLUDES(mutex_);
  // Whether any name is being built or waited for.
  bool any() const { return lease_count_ != 0; }
  // A change that the job has just made in the directory `entry`. It shows that the job still builds the names that it
  // leads there, or that it has given up.
  enum class Step {
    kTemporary,  // made a file that is no part of the entry
    kPart,       // made or renamed a part of the entry
    kCleared,    // removed a temporary file: without a part, the build has failed
  };
  void note_step(const Job& job, const std::string& entry, Step step) EXCLUDES(mutex_);
  // The job has finished building `path`, a name or an entry's directory: it is complete,
  // and published if it is going to be.
  void finished(const Job& job, const std::string& path) EXCLUDES(mutex_);
  std::vector<Description> describe() const;
  // Ends the waits that are over. Waits up to `timeout` for a process that ends, or a change; -1: for ever. The thread of this
  // object does nothing else.
  void tend_once(std::chrono::milliseconds timeout) EXCLUDES(mutex_);
  // The mount is to go away: those who wait build for themselves, as all do until reopen(). Returns the replies to those
  // who wait.
  PendingReplies close() EXCLUDES(mutex_);
  void reopen();

 private:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<std::string, const Job*>;  // of no job: of all
  using Waits = std::list<std::shared_ptr<Wait>>;
  struct Lease {
    std::optional<Process> leader;
    bool is_others = false;    // another daemon's: it has no leader here
    Job* job = nullptr;        // the leader's
    Process thread;
    std::string entry = {};  // of the name, as is the rule: see Seeker
    const void* rule = nullptr;
    bool is_entry = false;
    // Of an entry: what its builder does, and when /proc is next asked for that.
    BuilderActivity activity;
    Clock::time_point next_check;
    Clock::time_point since;  // that it leads
    // Since it leads: whether its job has made something in the entry's directory, and a part of the entry itself.
    bool has_begun = false;
    bool has_part = false;
    int looks = 0;          // of that thread, since it leads
    // Of that thread, since it leads. None yet if it was waiting when it became the leader: it looks once more then.
    std::optional<Clock::time_point> last_look;
    UniqueFd watched;
    std::uint64_t serial = 0;
    UniqueFd file;
    std::vector<Process> builders;  // beside the leader
    Waits waits;
    std::unordered_map<const Job*, NodeIndex> placeholders;
    bool is_to_be_checked = false;
    std::set<const Job*> finished;  // since the last check
    bool is_finished = false;       // by the leader's job, and not settled yet: then nothing is a sign of failure
    // Who is likely to come and lead, and until when nobody else does; and the process that waits for that.
    std::optional<Process> expected;
    Clock::time_point expected_until;
    pid_t expecting = 0;
  };
  // What a process knows of the one that has built what it waited for.
  struct Follower {
    Process builder;
    Clock::time_point since;  // that it has gone on
    bool expects = true;
  };
  using Leases = std::map<Key, Lease>;
  // The answers to be given once the mutex is free.
  using Answers = std::vector<std::shared_ptr<Wait>>;

  static constexpr std::uint64_t kWakeUpSerial = 0;  // no lease has this serial

  static Process self(const Seeker& seeker) { return seeker.lineage.front(); }
  bool only_looks(Lease& lease, const Seeker& seeker) const REQUIRES(mutex_);
  bool returns_without_a_step(const Lease& lease, const Seeker& seeker) const REQUIRES(mutex_);
  void fail_others_of(const Seeker& seeker, Answers& answers) REQUIRES(mutex_);
  void fail(Leases::iterator lease, Answers& answers) REQUIRES(mutex_);
  void note_building(Job* job) const REQUIRES(mutex_);
  static bool builds(const Lease& lease, const Lineage& lineage);
  Leases::iterator find(const Seeker& seeker) REQUIRES(mutex_);
  bool makes_room(const Process& builder, Answers& answers) REQUIRES(mutex_);
  Answer open_lease(const Seeker& seeker, Answers& answers) REQUIRES(mutex_);
  bool expect_builder(Lease& lease, const Seeker& seeker) REQUIRES(mutex_);
  bool is_busy(const Process& process) const REQUIRES(mutex_);
  NodeIndex placeholder_of(const Key& key, Lease& lease, Job* job) REQUIRES(mutex_);
  Answer lead(Lease& lease, const Key& key, const Seeker& seeker, UniqueFd watched,
              Answers& answers) REQUIRES(mutex_);
  bool closes_cycle(const Lineage& caller, const Lease& lease) const REQUIRES(mutex_);
  bool has_just_waited(const Seeker& seeker) REQUIRES(mutex_);
  void note_builder(const Seeker& seeker, const Process& builder) REQUIRES(mutex_);
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
    std::map<const Job*, EntryState> states;  // of the leader's job and of the waiters'
  };
  std::vector<Finding> take_findings() EXCLUDES(mutex_);
  void settle(const Finding& finding, Answers& answers) EXCLUDES(mutex_);
  static bool releases(const Lease& lease, const Finding& finding, const Job* job);
  static bool is_leader_done(const Lease& lease, const Finding& finding);

  const Options options_;
  NodeTable& nodes_;
  Counters& counters_;
  const UniqueFd events_;  // epoll: leaders' pidfds by serial, and wake_event_ by 0
  const UniqueFd wake_event_;
  mutable Mutex mutex_{LockRank::kFlights};
  Leases leases_ GUARDED_BY(mutex_);
  std::atomic<std::size_t> lease_count_{0};
  std::atomic<bool> remembers_failures_{false};
  std::unordered_map<NodeIndex, Key> placeholders_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Key> serials_ GUARDED_BY(mutex_);
  std::uint64_t next_serial_ GUARDED_BY(mutex_) = 1;
  // Threads that have waited for a name and not looked for it since.
  std::unordered_map<pid_t, std::string> waited_ GUARDED_BY(mutex_);
  std::unordered_map<pid_t, Follower> followers_ GUARDED_BY(mutex_);  // by process
  FailedBuilds failed_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cacheshim
