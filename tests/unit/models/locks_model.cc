// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/models/locks_model.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "fuse/services/locks/lock_table.h"
#include "store/sys/sys.h"
#include "tests/unit/models/model_locks.h"

namespace cacheshim::locks_model {
namespace {

using std::chrono::milliseconds;

constexpr pid_t kFirstPid = 1 << 23;  // above every real pid (PID_MAX_LIMIT)
// A non-blocking request is answered within this time.
constexpr milliseconds kLongerThanGrace = LockQueue::kGrace + milliseconds(1);

// A request and its result.
struct Outcome {
  std::size_t process = 0;
  std::size_t file = 0;
  LockRequest request;
  std::uint64_t ticket = 0;  // 0 if the request does not wait
  std::optional<int> error;
  bool is_interrupted = false;
  milliseconds since{0};      // the time at which the request began to wait
  bool may_deadlock = false;  // the request has closed a cycle of waiting processes
  int answers = 0;
};

class Call final : public LockReply {
 public:
  Call(std::shared_ptr<Outcome> outcome, std::vector<std::shared_ptr<Outcome>>& answered)
      : outcome_(std::move(outcome)), answered_(answered) {}
  void wait(std::uint64_t ticket) override { outcome_->ticket = ticket; }
  void answer(int error) override {
    outcome_->error = error;
    ++outcome_->answers;
    answered_.push_back(outcome_);
  }

 private:
  const std::shared_ptr<Outcome> outcome_;
  std::vector<std::shared_ptr<Outcome>>& answered_;
};

struct ModelProcess {
  pid_t pid = 0;
  bool reports_close = false;
  std::array<std::uint64_t, kFiles> handles{};
  std::shared_ptr<Outcome> waits;  // the request whose reply the process waits for
};

struct Orphan {  // a handle of a dead process that the process's child keeps open
  std::size_t file;
  std::uint64_t handle;
};

class World {
 public:
  World(const std::string& shared_file, Counters& counters);
  // Runs the actions. Returns the first fault, or "" if there is none.
  std::string run(const std::vector<Action>& actions);

 private:
  void act(const Action& action);
  void act_as(ModelProcess& process, const Action& action);
  void send(ModelProcess& process, std::size_t file, LockRequest request);
  void find(std::size_t file, LockRequest request);
  LockRequest request_of(const ModelProcess& process, const Action& action) const;
  void close_descriptor(const ModelProcess& process, std::size_t file);
  void release(std::size_t file, std::uint64_t handle);
  void kill(std::size_t process);
  void interrupt(ModelProcess& process);
  void raw_lock(unsigned number);
  void raw_unlock();
  void toggle_table();
  void tend();
  void drain();

  void settle();
  void check_refusal(const Outcome& outcome);
  void check_waiters();
  bool is_blocked(std::size_t file, const LockRequest& request) const;
  bool closes_cycle(const Outcome& request) const;
  std::vector<std::size_t> blockers_of(std::size_t file, const LockRequest& request) const;
  void fault(const std::string& what) {
    if (fault_.empty()) fault_ = what;
  }
  ModelProcess make_process(bool reports_close);
  LockSystem system();

  milliseconds now_{std::chrono::hours(1)};
  const UniqueFd shared_;
  const std::array<LockFileId, kFiles> ids_;
  EventLoop loop_;  // not started: tend() runs its tasks
  LockTable table_;
  pid_t next_pid_ = kFirstPid;
  std::uint64_t next_handle_ = 1;
  std::vector<ModelProcess> processes_;
  std::set<pid_t> dead_;
  std::vector<Orphan> orphans_;
  std::array<ModelLocks, kFiles> grants_;
  std::vector<std::shared_ptr<Outcome>> waiting_;   // in the order of arrival
  std::vector<std::shared_ptr<Outcome>> answered_;  // the requests answered since the last settle()
  UniqueFd raw_;
  LockRequest raw_lock_;
  bool is_closed_ = false;
  bool is_unseen_ = false;  // a lock has been released without an event
  std::string fault_;
};

LockFileId id_of(const UniqueFd& file) {
  struct stat st {};
  (void)::fstat(file.get(), &st);
  return {st.st_dev, st.st_ino};
}

LockSystem World::system() {
  LockSystem system = LockSystem::real();
  system.has_ended = [this](pid_t process) { return dead_.contains(process); };
  system.descriptors = [](pid_t, std::uint64_t, int) { return std::vector<OpenDescriptor>(); };
  system.has_descriptor = [](pid_t, const OpenDescriptor&) { return true; };
  system.arguments = [](pid_t) { return LockCallArguments{LockCallKind::kOfProcess, -1}; };
  system.is_releasing = [] { return false; };
  system.now = [this] { return LockQueue::Clock::time_point() + now_; };
  return system;
}

World::World(const std::string& shared_file, Counters& counters)
    : shared_(*sys::open_path(shared_file, O_RDWR)),
      ids_{LockFileId{0, 7}, id_of(shared_)},
      table_(counters, loop_, system()) {
  for (std::size_t at = 0; at < kProcesses; ++at) processes_.push_back(make_process(at % 2 == 0));
}

ModelProcess World::make_process(bool reports_close) {
  return {next_pid_++, reports_close, {next_handle_++, next_handle_++}, nullptr};
}

// Sends F_GETLK, and verifies that it finds a conflicting lock if and only if there is one.
void World::find(std::size_t file, LockRequest request) {
  request.is_record = true;
  request.owner = static_cast<std::uint64_t>(request.process);
  struct flock found {};
  const int error = table_.find(
      ids_.at(file), [this] { return sys::reopen(shared_.get(), O_PATH); }, request, found);
  settle();
  if (error != 0) fault("F_GETLK fails with " + std::to_string(error));
  if ((found.l_type != F_UNLCK) != is_blocked(file, request)) fault("F_GETLK finds another lock");
}

LockRequest World::request_of(const ModelProcess& process, const Action& action) const {
  constexpr std::array<off_t, 4> kLengths{1, 2, 4, 0};
  LockRequest request;
  request.is_record = action.kind == ActionKind::kRecord ||
                      (action.kind == ActionKind::kUnlock && action.number % 2 == 0);
  request.handle = process.handles.at(action.file);
  request.owner = request.is_record ? static_cast<std::uint64_t>(process.pid) : request.handle;
  request.process = process.pid;
  request.reports_close = process.reports_close;
  request.type = (action.number & 1U) != 0 ? F_WRLCK : F_RDLCK;
  if (action.kind == ActionKind::kUnlock) request.type = F_UNLCK;
  request.waits = (action.number & 6U) != 0;
  if (request.is_record) {
    request.start = static_cast<off_t>((action.number >> 3) % 4);
    request.length = kLengths.at((action.number >> 5) % 4);
  }
  return request;
}

void World::send(ModelProcess& process, std::size_t file, LockRequest request) {
  grants_.at(file).begin(request);
  auto outcome = std::make_shared<Outcome>();
  outcome->process = static_cast<std::size_t>(&process - processes_.data());
  outcome->file = file;
  outcome->request = request;
  outcome->may_deadlock = request.is_record && request.waits && closes_cycle(*outcome);
  table_.lock(
      ids_.at(file), [this] { return sys::reopen(shared_.get(), O_PATH); }, request,
      std::make_unique<Call>(outcome, answered_));
  if (!outcome->error) {
    if (outcome->ticket == 0) fault("a request is neither answered nor waits");
    outcome->since = now_;
    process.waits = outcome;
    waiting_.push_back(outcome);
  }
  settle();
}

// Processes the replies that the last call has sent. Grants all locks before it checks for conflicts, because the
// replies are not in the order in which the locks changed: a call may first change one lock to a read lock, and then
// grant another.
void World::settle() {
  const auto answered = std::exchange(answered_, {});
  for (const auto& outcome : answered) {
    if (outcome->answers != 1) fault("a request is answered twice");
    std::erase(waiting_, outcome);
    auto& waits = processes_.at(outcome->process).waits;
    if (waits == outcome) waits = nullptr;
    if (*outcome->error == 0) grants_.at(outcome->file).grant(outcome->request);
  }
  for (const auto& outcome : answered) {
    if (*outcome->error != 0) {
      check_refusal(*outcome);
    } else if (is_blocked(outcome->file, outcome->request)) {
      fault("process " + std::to_string(outcome->process) + " gets a lock that conflicts");
    }
  }
}

void World::check_refusal(const Outcome& outcome) {
  const LockRequest& request = outcome.request;
  bool has_reason = false;
  switch (*outcome.error) {
    case EAGAIN:
      // A non-blocking request with a ticket waited a few milliseconds, perhaps behind others.
      has_reason = !request.waits &&
                   (is_blocked(outcome.file, request) || outcome.ticket != 0 || is_unseen_);
      break;
    case EINTR:
      has_reason = outcome.is_interrupted;
      break;
    case ENOLCK:
      has_reason = is_closed_ && request.waits;
      break;
    case EDEADLK:
      has_reason = outcome.may_deadlock;
      break;
    default:
      break;
  }
  if (!has_reason) {
    fault("process " + std::to_string(outcome.process) + " is refused with " +
          std::to_string(*outcome.error) + " without a reason");
  }
}

bool World::is_blocked(std::size_t file, const LockRequest& request) const {
  if (raw_ && file == 1 && conflict(request, raw_lock_)) return true;
  return !blockers_of(file, request).empty();
}

// Returns the indices of the processes that hold a conflicting lock; kProcesses stands for a dead process.
std::vector<std::size_t> World::blockers_of(std::size_t file, const LockRequest& request) const {
  std::vector<std::size_t> blockers;
  for (const pid_t holder : grants_.at(file).holders_against(request, dead_)) {
    const auto at = std::find_if(processes_.begin(), processes_.end(),
                                 [&](const auto& process) { return process.pid == holder; });
    blockers.push_back(static_cast<std::size_t>(at - processes_.begin()));
  }
  return blockers;
}

// Returns true if the process of `request` would wait for itself, through a cycle of record locks.
bool World::closes_cycle(const Outcome& request) const {
  std::set<std::size_t> seen;
  std::vector<std::size_t> next = blockers_of(request.file, request.request);
  while (!next.empty()) {
    const std::size_t at = next.back();
    next.pop_back();
    if (at == request.process) return true;
    if (at == kProcesses || !seen.insert(at).second) continue;
    const auto& waits = processes_.at(at).waits;
    if (waits == nullptr || !waits->request.is_record || !waits->request.waits) continue;
    for (const std::size_t blocker : blockers_of(waits->file, waits->request))
      next.push_back(blocker);
  }
  return false;
}

void World::check_waiters() {
  for (auto waiter = waiting_.begin(); waiter != waiting_.end(); ++waiter) {
    const Outcome& outcome = **waiter;
    const bool is_behind = std::any_of(waiting_.begin(), waiter, [&](const auto& earlier) {
      const bool is_same_kind = earlier->request.is_record == outcome.request.is_record;
      return earlier->file == outcome.file && is_same_kind &&
             (!outcome.request.is_record || conflict(earlier->request, outcome.request));
    });
    if (!is_behind && !is_blocked(outcome.file, outcome.request)) {
      fault("process " + std::to_string(outcome.process) + " waits for a lock that is free");
    }
    if (is_closed_)
      fault("process " + std::to_string(outcome.process) + " waits for a closed table");
    if (outcome.request.is_record && outcome.request.waits && closes_cycle(outcome))
      fault("process " + std::to_string(outcome.process) + " waits for itself");
  }
}

// If reports_close is set for the process, sends FLUSH as the kernel does; this releases the process's record locks.
// Otherwise does nothing.
void World::close_descriptor(const ModelProcess& process, std::size_t file) {
  if (!process.reports_close) return;
  const auto owner = static_cast<std::uint64_t>(process.pid);
  grants_.at(file).erase({true, owner});
  table_.closed(ids_.at(file), process.handles.at(file), owner);
  settle();
}

// Releases the handle, and with it the locks that were taken through it.
void World::release(std::size_t file, std::uint64_t handle) {
  auto& grants = grants_.at(file);
  grants.erase({false, handle});
  for (const ModelProcess& process : processes_) {
    if (process.handles.at(file) == handle)
      grants.erase({true, static_cast<std::uint64_t>(process.pid)});
  }
  table_.released(ids_.at(file), handle);
  settle();
}

void World::interrupt(ModelProcess& process) {
  if (process.waits == nullptr) return;
  process.waits->is_interrupted = true;
  table_.interrupt(process.waits->ticket);
}

// Kills the process as the kernel does: interrupts its request, and closes its files when the
// request has been answered.
void World::kill(std::size_t at) {
  ModelProcess& process = processes_.at(at);
  if (process.waits != nullptr) {
    interrupt(process);
    tend();
    if (process.waits != nullptr) return fault("an interrupted request is not answered");
  }
  dead_.insert(process.pid);
  for (std::size_t file = 0; file < kFiles; ++file) {
    if (process.reports_close) {
      close_descriptor(process, file);
      release(file, process.handles.at(file));
    } else {
      orphans_.push_back({file, process.handles.at(file)});
      is_unseen_ = true;
    }
  }
  process = make_process(process.reports_close);
}

// Locks the base's file through a separate open file description, without waiting.
void World::raw_lock(unsigned number) {
  if (raw_) return;
  auto raw = sys::reopen(shared_.get(), O_RDWR);
  LockRequest request;
  request.is_record = (number & 2U) != 0;
  request.type = (number & 1U) != 0 ? F_WRLCK : F_RDLCK;
  if (!raw || LockSystem::real().set(raw->get(), request) != 0) return;
  raw_ = *std::move(raw);
  raw_lock_ = request;
}

void World::raw_unlock() {
  if (raw_) is_unseen_ = true;
  raw_.reset();
}

void World::toggle_table() {
  is_closed_ = !is_closed_;
  if (is_closed_) {
    table_.close().give();
    settle();
  } else {
    table_.reopen();
  }
}

void World::tend() {
  loop_.run_all();
  settle();
  is_unseen_ = false;
  for (const auto& outcome : waiting_) {
    if (!outcome->request.waits && now_ - outcome->since >= LockQueue::kGrace)
      fault("a request that does not wait is not answered");
  }
}

void World::act_as(ModelProcess& process, const Action& action) {
  switch (action.kind) {
    case ActionKind::kFlock:
    case ActionKind::kRecord:
    case ActionKind::kUnlock:
      return send(process, action.file, request_of(process, action));
    case ActionKind::kFind:
      return find(action.file, request_of(process, action));
    case ActionKind::kFlush:
      return close_descriptor(process, action.file);
    case ActionKind::kRelease:
      release(action.file, process.handles.at(action.file));
      process.handles.at(action.file) = next_handle_++;
      return;
    default:
      return;
  }
}

void World::act(const Action& action) {
  ModelProcess& process = processes_.at(action.process);
  switch (action.kind) {
    case ActionKind::kKill:
      return kill(action.process);
    case ActionKind::kInterrupt:
      return interrupt(process);
    case ActionKind::kRawLock:
      return raw_lock(action.number);
    case ActionKind::kRawUnlock:
      return raw_unlock();
    case ActionKind::kCloseTable:
      return toggle_table();
    case ActionKind::kPass:
      now_ += milliseconds(action.number);
      return;
    case ActionKind::kTend:
      return tend();
    default:
      if (process.waits == nullptr) act_as(process, action);
  }
}

// Makes every process close its files. Interrupts processes that wait for each other, one at a time, because LockTable
// does not detect deadlocks that involve flock(2) locks.
void World::drain() {
  raw_unlock();
  for (std::size_t round = 0; round <= 2 * kProcesses; ++round) {
    for (const Orphan& orphan : std::exchange(orphans_, {})) release(orphan.file, orphan.handle);
    for (ModelProcess& process : processes_) {
      for (std::size_t file = 0; file < kFiles && process.waits == nullptr; ++file)
        release(file, process.handles.at(file));
    }
    now_ += kLongerThanGrace;
    tend();
    check_waiters();
    if (!waiting_.empty()) interrupt(processes_.at(waiting_.front()->process));
  }
  if (!waiting_.empty()) fault("a request is never answered");
  for (const LockFileId& id : ids_) {
    if (table_.is_in_use(id)) fault("a queue is left");
  }
}

std::string World::run(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    act(action);
    if (!is_unseen_) check_waiters();
    if (!fault_.empty()) return fault_;
  }
  tend();
  check_waiters();
  drain();
  return fault_;
}

}  // namespace

std::string run(const std::string& shared_file, Counters& counters,
                const std::vector<Action>& actions) {
  return World(shared_file, counters).run(actions);
}

}  // namespace cacheshim::locks_model
