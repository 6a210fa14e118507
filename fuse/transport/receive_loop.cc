// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/receive_loop.h"

#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "fuse/transport/handle_request.h"
#include "fuse/transport/request_view.h"

namespace cacheshim {
namespace {

using Clock = std::chrono::steady_clock;

// How long a receiver polls for the next request before it sleeps: longer than a client needs from one answer to its
// next request, and about as long as waking a sleeping core takes.
constexpr auto kSpin = std::chrono::microseconds(50);
// A receiver stops spinning after kMostCredit failed spins in a row. The head starts spinning again once a request ends
// its sleep within kShortPause.
constexpr unsigned kMostCredit = 4;
constexpr auto kShortPause = std::chrono::microseconds(100);
// The head calls another receiver to help after this number of requests without a pause, or if the client has changed
// this number of times since the last long pause.
constexpr unsigned kBusyStreak = 16;
// A helper stops after this number of consecutive requests from the head's client, because a single client needs only
// one receiver.
constexpr unsigned kMostOfOneClient = 64;

constexpr auto kWatchTick = std::chrono::milliseconds(2);
constexpr unsigned kIdleTicks = 50;  // after this many ticks without progress, the watcher sleeps

// Returns the size of the kernel's largest request: 256 pages, and the headers.
std::size_t buffer_bytes() {
  static const auto kBytes = static_cast<std::size_t>(257 * ::sysconf(_SC_PAGESIZE));
  return kBytes;
}

// Allows one receiver per two cores, because the clients need the other cores. Two or three cores also get two
// receivers: on two cores, the second receiver makes the benchmark's rows `hit` and `commit` with four processes a
// sixth faster.
unsigned most_helpers(unsigned threads) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  return std::min({threads, cores, std::max(2U, cores / 2)}) - 1;
}

}  // namespace

class RequestBuffer {
 public:
  char* data() { return memory_.get(); }
  std::size_t size = 0;

  RequestView view() { return {data(), size}; }

 private:
  std::unique_ptr<char[]> memory_ = std::make_unique_for_overwrite<char[]>(buffer_bytes());
};

ReceiveLoop::ReceiveLoop(fuse_session* session, unsigned threads, std::function<void()> on_end)
    : session_(session),
      fd_(fuse_session_fd(session)),
      receivers_(std::max(2U, threads)),
      most_helpers_(most_helpers(threads)),
      stop_event_(::eventfd(0, EFD_CLOEXEC)),
      on_end_(std::move(on_end)) {
  (void)::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);  // cannot fail for an open fd
}

ReceiveLoop::~ReceiveLoop() { ReceiveLoop::stop(); }

void ReceiveLoop::start() {
  for (unsigned self = 1; self <= receivers_; ++self) {
    threads_.emplace_back([this, self] { run(self); });
  }
  threads_.emplace_back([this] { watch(); });
}

void ReceiveLoop::stop() {
  end();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::optional<ssize_t> ReceiveLoop::reply(const iovec* parts, int count) {
  return ::writev(fd_, parts, count);
}

// Ends the loop: wakes all receivers, which then return.
void ReceiveLoop::end() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  const std::uint64_t one = 1;
  (void)!::write(stop_event_.get(), &one, sizeof one);  // fails only if the counter is full
  call_.notify_all();
  watcher_call_.notify_all();
}

void ReceiveLoop::run(unsigned self) {
  RequestBuffer buffer;
  for (;;) {
    const Call call = wait_for_call(self);
    if (call == Call::kEnd) return;
    if (call == Call::kHead) lead(self, buffer);
    help(buffer);  // a former head helps as well
    if (call == Call::kHelp) {
      const MutexLock lock(mutex_);
      --helpers_;
    }
  }
}

ReceiveLoop::Call ReceiveLoop::wait_for_call(unsigned self) {
  const MutexLock lock(mutex_);
  while (!stopping_ && !head_called_ && helpers_called_ == 0) call_.wait(mutex_);
  if (stopping_) return Call::kEnd;
  if (head_called_) {
    head_called_ = false;
    head_ = self;
    return Call::kHead;
  }
  --helpers_called_;
  ++helpers_;
  return Call::kHelp;
}

void ReceiveLoop::call_head() {
  {
    const MutexLock lock(mutex_);
    head_ = 0;
    head_called_ = true;
  }
  call_.notify_one();
}

void ReceiveLoop::call_helper() {
  {
    const MutexLock lock(mutex_);
    if (helpers_ + helpers_called_ >= most_helpers_) return;
    ++helpers_called_;
  }
  call_.notify_one();
}

ReceiveLoop::Received ReceiveLoop::receive(RequestBuffer& buffer) {
  for (;;) {
    const ssize_t size = ::read(fd_, buffer.data(), buffer_bytes());
    if (size > 0 && static_cast<std::size_t>(size) < sizeof(fuse_in_header)) continue;
    if (size > 0) {
      buffer.size = static_cast<std::size_t>(size);
      return Received::kRequest;
    }
    if (size == -1 && errno == EAGAIN) return Received::kNothing;
    // ENOENT: the request was interrupted before the daemon received it.
    if (size == -1 && (errno == EINTR || errno == ENOENT)) continue;
    if (size == -1 && errno != ENODEV) {  // ENODEV: unmounted
      spdlog::error("reading /dev/fuse failed: {}; the mount ends", std::strerror(errno));
    }
    return Received::kEnd;
  }
}

ReceiveLoop::Received ReceiveLoop::spin(RequestBuffer& buffer, ClientCore::Guest* guest) {
  const auto begin = Clock::now();
  for (bool is_first = true; is_first || Clock::now() < begin + kSpin; is_first = false) {
    (void)::sched_yield();  // if other threads want the core, spinning would only delay them
    if (const Received received = receive(buffer); received != Received::kNothing) return received;
    if (is_first && guest != nullptr) guest->follow();
  }
  return Received::kNothing;
}

bool ReceiveLoop::has_request() const {
  pollfd event{fd_, POLLIN, 0};
  return ::poll(&event, 1, 0) > 0;
}

// Blocks until a request arrives or the loop ends. Returns true if that took less than kShortPause.
bool ReceiveLoop::wait_for_request() const {
  const auto begin = Clock::now();
  pollfd events[] = {{fd_, POLLIN, 0}, {stop_event_.get(), POLLIN, 0}};
  (void)::poll(events, 2, -1);  // ignores the result: the caller's next read(2) shows what happened
  return Clock::now() - begin < kShortPause;
}

void ReceiveLoop::lead(unsigned self, RequestBuffer& buffer) {
  ClientCore::Guest guest(client_core_);
  unsigned credit = kMostCredit;
  unsigned streak = 0;
  unsigned changes = 0;  // how often the client has changed
  while (head_.load(std::memory_order_relaxed) == self && !stopping_) {
    Received received = receive(buffer);
    streak = received == Received::kRequest ? streak + 1 : 0;
    if (received == Received::kNothing && credit > 0) {
      received = spin(buffer, &guest);
      credit = received == Received::kNothing ? credit - 1 : kMostCredit;
      if (received == Received::kNothing && guest.is_in()) continue;
    }
    if (received == Received::kEnd) {
      end();
      return on_end_();
    }
    if (received == Received::kNothing) {
      guest.leave();
      if (wait_for_request()) {
        credit = kMostCredit;
      } else {
        changes = 0;
      }
      continue;
    }
    if (const pid_t client = buffer.view().client(); client != 0 && client != head_client_) {
      head_client_ = client;
      ++changes;
    }
    if (streak == kBusyStreak || changes == kBusyStreak) {
      streak = changes = 0;
      // On the client's own core, the client has always sent its next request by the time the head
      // runs again. So a streak does not show that several clients send requests.
      if (!guest.is_in()) call_helper();
    }
    handle_as_head(buffer, guest);
  }
}

void ReceiveLoop::help(RequestBuffer& buffer) {
  unsigned same = 0;  // consecutive requests from the head's client
  for (unsigned credit = kMostCredit; !stopping_ && credit > 0 && same < kMostOfOneClient;) {
    Received received = receive(buffer);
    if (received == Received::kNothing) received = spin(buffer, nullptr);
    if (received == Received::kEnd) return;  // the head's read fails as well
    credit = received == Received::kNothing ? credit - 1 : kMostCredit;
    if (received == Received::kNothing) continue;
    const pid_t client = buffer.view().client();
    same = client == 0 || client == head_client_ ? same + 1 : 0;
    handle(buffer);
  }
}

void ReceiveLoop::handle_as_head(RequestBuffer& buffer, ClientCore::Guest& guest) {
  if (buffer.view().may_take_long()) {
    guest.leave();
    call_head();
    return handle(buffer);
  }
  // Changes progress_ and then reads watcher_sleeps_; watch() sets watcher_sleeps_ and then reads progress_. So at
  // least one of the two sees the other's change. progress_ is changed atomically because a deposed head may still be
  // reading its last request: two heads must never get the same number.
  std::uint64_t before = progress_;
  while (!progress_.compare_exchange_weak(before, (before + 2) | 1)) continue;
  const std::uint64_t busy = (before + 2) | 1;
  if (watcher_sleeps_) wake_watcher();
  buffer.view().is_read_ahead() ? guest.leave() : guest.note_request(buffer.view().client());
  handle(buffer);
  std::uint64_t expected = busy;  // another thread may be the head by now
  progress_.compare_exchange_strong(expected, busy & ~std::uint64_t{1});
}

void ReceiveLoop::handle(RequestBuffer& buffer) {
  handle_request(session_, buffer.view());
}

void ReceiveLoop::wake_watcher() {
  {
    const MutexLock lock(mutex_);
    watcher_sleeps_ = false;
  }
  watcher_call_.notify_one();
}

void ReceiveLoop::watch() {
  const MutexLock lock(mutex_);
  std::uint64_t before = 0;
  std::uint64_t deposed = 0;  // the value of progress_ when the last head was deposed
  for (unsigned idle_ticks = 0; !stopping_;) {
    (void)watcher_call_.wait_for(mutex_, kWatchTick);
    const std::uint64_t now = progress_;
    const bool busy = (now & 1) != 0;
    if (now == before && client_core_.has_guest() && (busy || has_request())) client_core_.stop();
    if (busy && now == before && now != deposed && !head_called_) {
      deposed = now;
      head_ = 0;
      head_called_ = true;
      call_.notify_one();
    }
    idle_ticks = now == before && (!busy || now == deposed) ? idle_ticks + 1 : 0;
    before = now;
    if (idle_ticks < kIdleTicks || client_core_.has_guest()) continue;
    watcher_sleeps_ = true;
    if (progress_ != now) watcher_sleeps_ = false;
    while (!stopping_ && watcher_sleeps_) watcher_call_.wait(mutex_);
    idle_ticks = 0;
  }
}

}  // namespace cacheshim
