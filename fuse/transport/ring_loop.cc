// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/ring_loop.h"

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "common/exit_codes.h"
#include "fuse/daemon.h"
#include "fuse/transport/handle_request.h"
#include "fuse/transport/own_mount.h"
#include "fuse/transport/request_view.h"
#include "fuse/transport/wire.h"
#include "store/sys/process.h"

namespace cacheshim {
namespace {

constexpr unsigned kLeastOfCore = 2;
constexpr auto kRingWatchTick = std::chrono::milliseconds(2);
constexpr auto kSignalRecheckDelay = std::chrono::milliseconds(1);
// After this many ticks without progress, the watcher ends the guests' stays (ClientCore::rest()) and sleeps.
constexpr unsigned kRingIdleTicks = 50;
constexpr const char* kPossibleCores = "/sys/devices/system/cpu/possible";

// The request that this thread is handling, if it came through a ring.
thread_local RingEntry* handled = nullptr;

bool is_enabled() {
  char value = 'N';
  std::ifstream(kRingParameter) >> value;
  return value == 'Y';
}

// Returns num_possible_cpus(), the number of the kernel's queues: 8 for "0-3,8-11". Returns 0 if it
// is unknown.
unsigned count_possible_cores() {
  std::ifstream list(kPossibleCores);
  unsigned count = 0;
  for (unsigned first = 0; list >> first;) {
    unsigned last = first;
    if (list.peek() == '-') list.ignore() >> last;
    if (list.peek() == ',') list.ignore();
    count += last - first + 1;
  }
  return count;
}

}  // namespace

void RingLoop::Answered::add(RingEntry& entry) {
  const MutexLock lock(mutex_);
  entries_.push_back(&entry);
  is_empty_ = false;
}

std::vector<RingEntry*> RingLoop::Answered::take() {
  if (is_empty_) return {};
  const MutexLock lock(mutex_);
  is_empty_ = true;
  return std::exchange(entries_, {});
}

std::uint64_t RingLoop::Core::arrivals() const {
  std::uint64_t count = 0;
  for (const auto& receiver : receivers) count += receiver->progress / 2;
  return count;
}

bool RingLoop::Core::are_at_rest() const {
  return std::none_of(receivers.begin(), receivers.end(), [](const auto& receiver) {
    return receiver->is_at_work() || receiver->ring->has_request();
  });
}

RingLoop::RingLoop(fuse_session* session, std::string mount_point, unsigned threads)
    : session_(session), mount_point_(std::move(mount_point)), threads_(threads) {}

std::unique_ptr<RingLoop> RingLoop::make(fuse_session* session, const std::string& mount_point,
                                         unsigned threads, std::string& why) {
  if (!is_enabled()) {
    why = "the kernel's parameter fuse.enable_uring is off";
    return nullptr;
  }
  const unsigned cores = count_possible_cores();
  cpu_set_t ours;
  if (cores == 0 || ::sched_getaffinity(0, sizeof ours, &ours) == -1) {
    why = "the kernel does not list its cores";
    return nullptr;
  }
  const auto ours_count = static_cast<unsigned>(CPU_COUNT(&ours));
  if (static_cast<long>(ours_count) < ::sysconf(_SC_NPROCESSORS_ONLN)) {
    why = "the daemon may not run on all cores";
    return nullptr;
  }
  std::unique_ptr<RingLoop> loop(new RingLoop(session, mount_point, threads));
  const unsigned of_core = std::max(kLeastOfCore, threads / ours_count);
  std::vector<std::uint16_t> off;
  bool is_set_up = true;
  for (std::uint16_t core = 0; core < cores && is_set_up; ++core) {
    if (core < CPU_SETSIZE && CPU_ISSET(core, &ours)) {
      is_set_up = loop->add_core(core, {core}, of_core);
    } else {
      off.push_back(core);
    }
  }
  if (!off.empty()) is_set_up = is_set_up && loop->add_core(-1, off, of_core);
  if (!is_set_up) {
    why = std::strerror(errno);
    return nullptr;
  }
  try {
    loop->make_threads();
  } catch (const std::system_error& error) {
    why = error.what();
    return nullptr;
  }
  return loop;
}

bool RingLoop::add_core(int number, const std::vector<std::uint16_t>& queues, unsigned receivers) {
  Core& core = *cores_.emplace_back(std::make_unique<Core>());
  core.number = number;
  for (unsigned i = 0; i < receivers; ++i) {
    auto receiver = std::make_unique<Receiver>();
    receiver->ring = RequestRing::make(fuse_session_fd(session_), queues);
    if (!receiver->ring) return false;
    receiver->client_core = number < 0 ? std::make_unique<ClientCore>()
                                       : std::make_unique<ClientCore>(anywhere_, number);
    receivers_.push_back(receiver.get());
    core.receivers.push_back(std::move(receiver));
  }
  return true;
}

// Creates all threads, which wait for start().
void RingLoop::make_threads() {
  have_closed_ = std::make_unique<std::latch>(static_cast<std::ptrdiff_t>(receivers_.size()));
  slow_requests_ = std::make_unique<TaskQueue>(threads_);
  drain_ = std::make_unique<QueueDrain>(
      [this](std::uint16_t core) { return own_mount::start_probe(mount_point_, core); });
  signal_checks_ = std::make_unique<TaskQueue>(1);
  for (const auto& core : cores_) {
    for (const auto& receiver : core->receivers) {
      receiver->thread = std::thread([this, &core = *core, &self = *receiver] { run(core, self); });
    }
  }
  watcher_ = std::thread([this] { watch(); });
}

std::uint32_t RingLoop::init_flags2() const { return wire::kOverIoUringInFlags2; }

void RingLoop::start() {
  phase_ = Phase::kServing;
  phase_.notify_all();
}

void RingLoop::stop() {
  if (phase_ != Phase::kServing) return;
  phase_ = Phase::kEnding;
  signal_checks_->stop();
  drain_->stop();  // while the receivers still answer: the drain may be waiting for an answer
  phase_ = Phase::kAnswering;
  for (Receiver* const receiver : receivers_) receiver->ring->wake();
  have_closed_->wait();
  slow_requests_->stop();
}

RingLoop::~RingLoop() {
  RingLoop::stop();
  phase_ = Phase::kOver;
  phase_.notify_all();
  for (Receiver* const receiver : receivers_) {
    receiver->ring->wake();
    if (receiver->thread.joinable()) receiver->thread.join();
  }
  if (watcher_.joinable()) {
    wake_watcher();
    watcher_.join();
  }
}

void RingLoop::run(Core& core, Receiver& self) {
  phase_.wait(Phase::kSetUp);
  if (phase_ == Phase::kOver) return;
  (void)go_to_core(core.number);  // if the core is offline, the thread runs anywhere
  const int failure = serve(core, self);
  have_closed_->count_down();
  while (phase_ == Phase::kAnswering && self.ring->failure() == 0) (void)wait(core, self);
  (void)send_answers_of_others(core, self);
  if (self.ring->failure() == 0) self.ring->submit();
  if (failure == 0 || failure == ENODEV || failure == ENOTCONN || is_unmounted()) return;
  spdlog::critical("receiving requests over io_uring failed: {}; the daemon ends",
                   std::strerror(failure));
  spdlog::default_logger()->flush();
  // Closes /dev/fuse, so that the kernel fails all waiting requests. exit(3) would first run destructors, which could
  // wait for a thread that waits for such a request.
  std::_Exit(kExitUnavailable);
}

// Returns true if the mount is gone. A ring's error does not show this: during an unmount, giving back an entry may
// fail with any error.
bool RingLoop::is_unmounted() const {
  pollfd event{fuse_session_fd(session_), 0, 0};
  return ::poll(&event, 1, 0) == 1 && (event.revents & POLLERR) != 0;
}

// Receives requests until no more arrive. Returns 0, or an errno value if the ring has failed.
int RingLoop::serve(Core& core, Receiver& self) {
  ClientCore::Guest guest(*self.client_core);
  if (const int failure = self.ring->begin(); failure != 0) return failure;
  while (self.ring->failure() == 0) {
    const std::vector<RingEntry*>& requests = wait(core, self);
    if (phase_ >= Phase::kAnswering) return 0;
    for (RingEntry* const entry : requests) {
      take(core, self, guest, *entry);
      if (entry != requests.back()) self.ring->submit();
    }
  }
  return self.ring->failure();
}

// Waits for requests, and ensures that no answer from another thread is left behind. Before the wait, the receiver
// marks itself idle and then checks for such answers. A thread that adds an answer after this check sees the mark, and
// wakes the receiver. After the wait, the receiver marks itself busy and checks again. A thread that adds an answer
// after the second check wakes no busy receiver, because each of them checks before its next wait.
const std::vector<RingEntry*>& RingLoop::wait(Core& core, Receiver& self) {
  if (self.is_at_work()) --self.progress;
  (void)send_answers_of_others(core, self);
  const std::vector<RingEntry*>& requests = self.ring->wait();
  if (requests.empty()) return requests;
  self.progress += 3;
  if (send_answers_of_others(core, self)) self.ring->submit();
  return requests;
}

// Gives back to the kernel the entries that other threads have answered. Returns true if there were
// any.
bool RingLoop::send_answers_of_others(Core& core, Receiver& self) {
  const std::vector<RingEntry*> entries = core.answered.take();
  for (RingEntry* const entry : entries) self.ring->give_back(*entry);
  return !entries.empty();
}

void RingLoop::take(Core& core, Receiver& self, ClientCore::Guest& guest, RingEntry& entry) {
  const RequestView request(entry.bytes(), entry.size());
  // Copied, because once the request is answered, the entry may hold another request, on another thread.
  CoreQueue& queue = entry.queue();
  const RequestId id{entry.unique(), request.client()};
  if (request.may_take_long()) {
    note_held(core, self, queue);
    slow_requests_->post([this, &entry] { (void)handle(entry); });
    return;
  }
  request.is_read_ahead() ? guest.leave() : guest.note_request(id.client);
  if (guest.is_in() && watcher_sleeps_) wake_watcher();
  if (handle(entry)) return;
  note_held(core, self, queue);
  if (id.client != 0 && !check_for_signal(id)) recheck_later(id);
}

// Interrupts the request if its client received a signal before the daemon received the request. Over /dev/fuse, the
// kernel reports such a signal (fuse_dev_do_read()); over io_uring, up to Linux 6.18, it does not. It always reports
// later signals. The client's state in /proc shows the signal: request_wait_answer() sleeps in TASK_INTERRUPTIBLE ('S')
// until a signal arrives, and in TASK_KILLABLE ('D') from then on. A client in state 'R' may not have checked yet
// whether the daemon has the request. Returns false if the state is 'R': the caller must check again.
bool RingLoop::check_for_signal(const RequestId& id) {
  const auto stat = stat_of(id.client);
  if (stat && stat->state == 'D') interrupt(id.unique);
  return !stat || stat->state != 'R';
}

void RingLoop::recheck_later(const RequestId& id) {
  signal_checks_->post([this, id] {
    std::this_thread::sleep_for(kSignalRecheckDelay);
    if (phase_ != Phase::kServing || find(id.unique) == nullptr) return;
    if (!check_for_signal(id)) recheck_later(id);
  });
}

// Passes libfuse a FUSE_INTERRUPT for the request, as the kernel would send it. libfuse knows which requests can be
// interrupted.
void RingLoop::interrupt(std::uint64_t unique) {
  constexpr std::uint64_t kOfInterrupt = 1;  // FUSE_INT_REQ_BIT
  struct {
    fuse_in_header header{};
    fuse_interrupt_in body{};
  } request;
  request.header.len = sizeof request;
  request.header.opcode = FUSE_INTERRUPT;
  request.header.unique = unique | kOfInterrupt;
  request.body.unique = unique;
  fuse_buf bytes{};
  bytes.mem = &request;
  bytes.size = sizeof request;
  wire::begin_request(nullptr);
  fuse_session_process_buf(session_, &bytes);
}

// Passes the request to libfuse. Returns true if it has been answered by the time the handler returns.
bool RingLoop::handle(RingEntry& entry) {
  handled = &entry;
  handle_request(session_, {entry.bytes(), entry.size()});
  handled = nullptr;
  const bool is_answered = entry.release();
  if (is_answered) give_back(entry);
  return is_answered;
}

void RingLoop::note_held(Core& core, Receiver& self, CoreQueue& queue) const {
  self.ring->note_held(queue);
  self.ring->submit();
  ++core.held_count;
  drain_->note_held(core, queue.core);
}

std::optional<ssize_t> RingLoop::reply(const iovec* parts, int count) {
  fuse_out_header header;
  std::memcpy(&header, parts[0].iov_base, sizeof header);
  if (header.unique == 0) return std::nullopt;  // a notification
  const bool is_handled_here = handled != nullptr && handled->unique() == header.unique;
  RingEntry* const entry = is_handled_here ? handled : find(header.unique);
  if (entry == nullptr) return std::nullopt;
  entry->put_answer(parts, count);
  if (entry->release()) give_back(*entry);
  return header.len;
}

void RingLoop::give_back(RingEntry& entry) {
  RequestRing& ring = entry.ring();
  if (ring.is_of_this_thread()) return ring.give_back(entry);
  Core& core = core_of(ring);
  core.answered.add(entry);
  const auto free_one =
      std::find_if_not(core.receivers.begin(), core.receivers.end(),
                       [](const auto& receiver) { return receiver->is_at_work(); });
  if (free_one != core.receivers.end()) (*free_one)->ring->wake();
}

RingLoop::Core& RingLoop::core_of(const RequestRing& ring) const {
  return **std::find_if(cores_.begin(), cores_.end(), [&ring](const auto& core) {
    return std::any_of(core->receivers.begin(), core->receivers.end(),
                       [&ring](const auto& receiver) { return receiver->ring.get() == &ring; });
  });
}

RingEntry* RingLoop::find(std::uint64_t unique) const {
  for (Receiver* const receiver : receivers_) {
    if (RingEntry* const entry = receiver->ring->find(unique)) return entry;
  }
  return nullptr;
}

char* RingLoop::reply_space(std::size_t size) {
  return handled != nullptr && size <= RingEntry::room() ? handled->answer_space() : nullptr;
}

bool RingLoop::has_guests() const {
  return std::any_of(receivers_.begin(), receivers_.end(),
                     [](Receiver* receiver) { return receiver->client_core->has_guest(); });
}

// Ends the receiver's stay as a guest if the receiver has work but makes no progress. Returns true if the receiver has
// made progress since the last call.
bool RingLoop::check_progress(Receiver& receiver) {
  const std::uint64_t now = receiver.progress;
  const bool has_progressed = now != receiver.seen_progress;
  receiver.seen_progress = now;
  if (!has_progressed && receiver.client_core->has_guest() &&
      (receiver.is_at_work() || receiver.ring->has_request())) {
    receiver.client_core->stop();
  }
  return has_progressed;
}

void RingLoop::wake_watcher() {
  {
    const MutexLock lock(mutex_);
    watcher_sleeps_ = false;
  }
  watcher_call_.notify_one();
}

// Ends the stay of a guest that other threads keep off its core, because they might do so for a long time. The watcher
// is awake only while there is a guest.
void RingLoop::watch() {
  const MutexLock lock(mutex_);
  for (unsigned idle_ticks = 0; phase_ != Phase::kOver;) {
    (void)watcher_call_.wait_for(mutex_, kRingWatchTick);
    ++idle_ticks;
    for (Receiver* const receiver : receivers_) {
      if (check_progress(*receiver)) idle_ticks = 0;
    }
    if (has_guests() && idle_ticks < kRingIdleTicks) continue;
    for (Receiver* const receiver : receivers_) receiver->client_core->rest();
    idle_ticks = 0;
    watcher_sleeps_ = true;
    if (has_guests()) watcher_sleeps_ = false;
    while (phase_ != Phase::kOver && watcher_sleeps_) watcher_call_.wait(mutex_);
  }
}

}  // namespace cacheshim
