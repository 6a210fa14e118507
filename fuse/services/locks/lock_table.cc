// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/lock_table.h"

#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// The interval at which the loop checks for waits that have ended and conflicting locks that were released, if no event
// reports this.
constexpr std::chrono::milliseconds kLockPoll{5};

bool knows_no_locks(int error) { return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP; }

void send_answers(LockQueue::Answers& answers) {
  for (auto& [reply, error] : answers) reply->answer(error);
  answers.clear();
}

// Makes an anonymous file on which the daemon takes the locks of a job's file, or of a file whose file system does not
// support locks.
Result<UniqueFd> make_stand_in() {
  UniqueFd fd(::memfd_create("cacheshim-lock", MFD_CLOEXEC));
  if (!fd) return Errno::last();
  return fd;
}

}  // namespace

LockTable::LockTable(Counters& counters, EventLoop& loop, LockSystem system)
    : counters_(counters),
      system_(std::move(system)),
      task_(loop, "tending locks", [this](const auto&) { return tend(); }) {}

LockTable::Queue LockTable::find_queue(const LockFileId& id) {
  if (count_ == 0) return nullptr;
  const MutexLock lock(mutex_);
  const auto found = queues_.find(id);
  return found == queues_.end() ? nullptr : found->second;
}

// Whether the file system supports locks. Tests this only once per file system, before the daemon locks any of its
// files. A later ENOLCK means only that the kernel has run out of locks. If the daemon then took new locks on
// stand-ins, two processes could get the same lock.
bool LockTable::can_lock(int file, std::uint64_t device) {
  {
    const MutexLock lock(mutex_);
    if (lockable_.contains(device)) return true;
    if (local_only_.contains(device)) return false;
  }
  const auto fd = sys::reopen(file, O_RDONLY);
  LockRequest probe;
  probe.type = F_RDLCK;
  const int error = fd ? system_.set(fd->get(), probe) : 0;
  const MutexLock lock(mutex_);
  if (!knows_no_locks(error)) {
    lockable_.insert(device);
    return true;
  }
  if (local_only_.insert(device).second) {
    spdlog::warn(
        "the base's file system does not support locks ({}): lock files exclude only the processes of "
        "this mount",
        std::strerror(error));
  }
  return false;
}

Result<UniqueFd> LockTable::file_of(const LockFileId& id, const Opener& open, bool& is_shared) {
  is_shared = false;
  if (!id.is_shared()) return make_stand_in();
  CACHESHIM_TRY(file, open());
  is_shared = can_lock(file.get(), id.device);
  return is_shared ? Result<UniqueFd>(std::move(file)) : make_stand_in();
}

Result<LockTable::Queue> LockTable::ensure_queue(const LockFileId& id, const Opener& open) {
  if (Queue found = find_queue(id); found != nullptr) return found;
  bool is_shared = false;
  CACHESHIM_TRY(file, file_of(id, open, is_shared));
  auto made = std::make_shared<LockQueue>(std::move(file), is_shared, system_);
  const MutexLock lock(mutex_);
  const auto [at, added] = queues_.try_emplace(id, std::move(made));
  count_ = queues_.size();
  return at->second;
}

// Call at the end of an operation that may have changed the queue.
void LockTable::end_visit(const LockFileId& id, const Queue& queue) {
  if (!queue->has_waiters()) {
    on_release_();
  } else if (queue->needs_poll()) {
    call_loop();
  }
  drop_if_unused(id, queue);
}

// Removes the queue from the table if it is unused.
void LockTable::drop_if_unused(const LockFileId& id, const Queue& queue) {
  queue->dropped |= queue->is_unused();
  if (!queue->dropped) return;
  const MutexLock lock(mutex_);
  if (queue->moved) {
    std::erase_if(queues_, [&](const auto& known) { return known.second == queue; });
  } else if (const auto found = queues_.find(id);
             found != queues_.end() && found->second == queue) {
    queues_.erase(found);
  }
  count_ = queues_.size();
}

void LockTable::call_loop() {
  {
    const MutexLock lock(waiting_mutex_);
    if (is_called_) return;
    is_called_ = true;
  }
  task_.wake();
}

void LockTable::lock(const LockFileId& id, const Opener& open, const LockRequest& request,
                     std::unique_ptr<LockReply> reply) {
  LockQueue::Answers answers;
  if (request.type == F_UNLCK && find_queue(id) == nullptr) return reply->answer(0);
  for (;;) {
    const auto ensured = ensure_queue(id, open);
    if (!ensured) return reply->answer(ensured.error().code());
    const Queue& queue = *ensured;
    std::optional<std::uint64_t> ticket;  // set if the request waits
    {
      const MutexLock lock(queue->mutex);
      if (queue->dropped) continue;  // another thread has just dropped the queue
      int error = queue->try_request(request, answers);
      if (error == EINPROGRESS && closed_) error = request.waits ? ENOLCK : EAGAIN;
      auto charge = Charge::take(request.account, Limit::kWaiters, error == EINPROGRESS ? 1 : 0);
      if (!charge) error = request.waits ? charge.error().code() : EAGAIN;
      if (error == EINPROGRESS) {
        ticket = add_waiter(queue, request, std::move(reply), *std::move(charge));
      } else {
        answers.emplace_back(std::move(reply), error);
      }
      end_visit(id, queue);
    }
    send_answers(answers);
    if (ticket && request.is_record && request.waits) break_cycle(id, queue, request, *ticket);
    return;
  }
}

// Adds the waiting request. Returns its ticket.
std::uint64_t LockTable::add_waiter(const Queue& queue, const LockRequest& request,
                                    std::unique_ptr<LockReply> reply, Charge charge) {
  counters_.lock_waits.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t ticket = next_ticket_++;
  LockReply& waiting = *reply;
  queue->add_waiter(request, std::move(reply), ticket, std::move(charge));
  {
    const MutexLock lock(waiting_mutex_);
    waiting_.insert(queue);
  }
  waiting.wait(ticket);  // no other thread can answer it, because this thread holds the queue's mutex
  return ticket;
}

// Answers the request with EDEADLK if its owner would wait for itself, through other owners and any files of the mount.
// waits_for_itself() limits the search. Linux does the same for record locks on a local file system
// (posix_locks_deadlock() in fs/locks.c). Does nothing for a lock of an open file description, because another thread
// may release the lock.
void LockTable::break_cycle(const LockFileId& id, const Queue& queue, const LockRequest& request,
                            std::uint64_t ticket) {
  LockQueue::Answers answers;
  {
    const MutexLock cycles(cycles_mutex_);
    if (!waits_for_itself(request.owner)) return;
    if (system_.arguments(request.thread).kind == LockCallKind::kOfDescription) return;
    const MutexLock lock(queue->mutex);
    queue->withdraw(ticket, EDEADLK, answers);
    end_visit(id, queue);
  }
  send_answers(answers);
}

bool LockTable::waits_for_itself(std::uint64_t owner) {
  constexpr int kMostSteps = 12;  // the longest cycle for which fcntl(2) on a local file system returns EDEADLK
  constexpr std::size_t kMostOwners = 256;
  const std::vector<Queue> waiting = [this] {
    const MutexLock lock(waiting_mutex_);
    return std::vector<Queue>(waiting_.begin(), waiting_.end());
  }();
  std::set<std::uint64_t> seen;
  std::set<std::uint64_t> step{owner};
  for (int steps = 0; steps < kMostSteps && !step.empty() && seen.size() < kMostOwners; ++steps) {
    std::set<std::uint64_t> blockers;
    for (const Queue& queue : waiting) {
      const MutexLock lock(queue->mutex);
      queue->add_blockers(step, blockers);
    }
    if (blockers.contains(owner)) return true;
    step.clear();
    for (const std::uint64_t blocker : blockers) {
      if (seen.insert(blocker).second) step.insert(blocker);
    }
  }
  return false;
}

void LockTable::move(const LockFileId& from, const LockFileId& to, const Opener& open) {
  const Queue queue = find_queue(from);
  if (queue == nullptr) return;
  bool is_shared = false;
  auto file = file_of(to, open, is_shared);
  if (!file) return;  // the lock stays on the old file, and excludes only the job's processes
  LockQueue::Answers answers;
  {
    const MutexLock lock(queue->mutex);
    if (queue->dropped) return;
    queue->owners.move_to(*std::move(file), is_shared);
    queue->moved = true;
    {
      const MutexLock table(mutex_);
      queues_.try_emplace(to, queue);
      count_ = queues_.size();
    }
    queue->poll(answers);  // an owner whose lock could not be moved has lost it, so waiters may get it
    end_visit(to, queue);
  }
  send_answers(answers);
}

bool LockTable::releases_exclusive(const LockFileId& id, const LockRequest& unlock) {
  const Queue queue = find_queue(id);
  if (queue == nullptr) return false;
  const MutexLock lock(queue->mutex);
  return queue->owners.releases_exclusive(unlock);
}

bool LockTable::is_held_by(const LockFileId& id, pid_t process) {
  const Queue queue = find_queue(id);
  if (queue == nullptr) return false;
  const MutexLock lock(queue->mutex);
  return queue->owners.is_held_by(process);
}

bool LockTable::is_wanted(const LockFileId& id) {
  const Queue queue = find_queue(id);
  if (queue == nullptr) return false;
  const MutexLock lock(queue->mutex);
  return queue->is_wanted_by_others(-1);
}

int LockTable::find(const LockFileId& id, const Opener& open, const LockRequest& request,
                    struct flock& lock) {
  for (;;) {
    const auto ensured = ensure_queue(id, open);
    if (!ensured) return ensured.error().code();
    const Queue& queue = *ensured;
    LockQueue::Answers answers;
    int error = 0;
    {
      const MutexLock guard(queue->mutex);
      if (queue->dropped) continue;
      error = queue->find(request, lock, answers);
    }
    send_answers(answers);
    return error;
  }
}

void LockTable::closed(const LockFileId& id, std::uint64_t handle, std::uint64_t owner) {
  const Queue queue = find_queue(id);
  if (queue == nullptr) return;
  LockQueue::Answers answers;
  {
    const MutexLock lock(queue->mutex);
    queue->closed(handle, owner, answers);
    end_visit(id, queue);
  }
  send_answers(answers);
}

void LockTable::released(const LockFileId& id, std::uint64_t handle) {
  const Queue queue = find_queue(id);
  if (queue == nullptr) return;
  LockQueue::Answers answers;
  {
    const MutexLock lock(queue->mutex);
    queue->released(handle, answers);
    end_visit(id, queue);
  }
  send_answers(answers);
}

void LockTable::interrupt(std::uint64_t ticket) {
  {
    const MutexLock lock(waiting_mutex_);
    interrupts_.push_back(ticket);
  }
  call_loop();
}

std::vector<LockTable::Queue> LockTable::all_queues() {
  std::vector<Queue> queues;
  const MutexLock lock(mutex_);
  for (const auto& [id, queue] : queues_) queues.push_back(queue);
  return queues;
}

LockTable::State LockTable::state() {
  State state;
  std::set<std::uint64_t> handles;
  for (const Queue& queue : all_queues()) {
    const MutexLock lock(queue->mutex);
    queue->add_waiting(handles, state.waiting_processes);
  }
  state.waiting_handles = handles.size();
  const MutexLock lock(mutex_);
  state.is_local_only = !local_only_.empty();
  return state;
}

PendingReplies LockTable::close() {
  closed_ = true;
  const auto answers = std::make_shared<LockQueue::Answers>();
  for (const Queue& queue : all_queues()) {
    const MutexLock lock(queue->mutex);
    queue->refuse_all(ENOLCK, *answers);
  }
  PendingReplies replies;
  replies.add([answers] { send_answers(*answers); });
  return replies;
}

Status LockTable::unless_wanted(const LockFileId& id, const Opener& open, pid_t process,
                                const std::function<Status()>& action) {
  for (;;) {
    CACHESHIM_TRY(queue, ensure_queue(id, open));
    const MutexLock lock(queue->mutex);
    if (queue->dropped) continue;
    const Status done = queue->is_wanted_by_others(process) ? Status(Errno(EBUSY)) : action();
    drop_if_unused(id, queue);  // not end_visit(), because no lock was released
    return done;
  }
}

// Answers the interrupted requests in the queue, and polls it if necessary. Returns true if it must be polled again.
bool LockTable::visit(const Queue& queue, const std::vector<std::uint64_t>& interrupts) {
  LockQueue::Answers answers;
  bool again = false;
  {
    const MutexLock lock(queue->mutex);
    for (const std::uint64_t ticket : interrupts) queue->withdraw(ticket, EINTR, answers);
    if (queue->needs_poll()) queue->poll(answers);
    again = queue->needs_poll();
    if (!queue->has_waiters()) {
      const MutexLock waiting_lock(waiting_mutex_);
      waiting_.erase(queue);
    }
  }
  send_answers(answers);
  return again;
}

// Answers interrupted requests, and tries those whose conflicting locks may have been released without an event.
// Returns when to call tend() again.
EventLoop::Clock::time_point LockTable::tend() {
  ReleasableMutexLock lock(waiting_mutex_);
  is_called_ = false;
  const auto interrupts = std::exchange(interrupts_, {});
  const std::vector<Queue> waiting(waiting_.begin(), waiting_.end());
  lock.unlock();
  bool polls = false;
  for (const Queue& queue : waiting) polls |= visit(queue, interrupts);
  return polls ? EventLoop::Clock::now() + kLockPoll : EventLoop::kNever;
}

}  // namespace cacheshim
