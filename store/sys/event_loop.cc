// SPDX-License-Identifier: Apache-2.0
#include "store/sys/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "store/sys/guard.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kEvent = 0;  // the id of a stop or wake event among those of tasks and descriptors

[[noreturn]] void fail() {
  throw std::system_error(errno, std::generic_category(), "cannot wait for events");
}

UniqueFd checked(int fd) {
  if (fd == -1) fail();
  return UniqueFd(fd);
}

bool add_event(int events, int fd, std::uint32_t kinds, std::uint64_t id) {
  epoll_event event{};
  event.events = kinds;
  event.data.u64 = id;
  if (::epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) == 0) return true;
  return errno == EEXIST && ::epoll_ctl(events, EPOLL_CTL_MOD, fd, &event) == 0;
}

void add_or_throw(int events, int fd, std::uint64_t id) {
  if (!add_event(events, fd, EPOLLIN, id)) fail();
}

// Returns the ids of some descriptors that are ready; the others stay ready.
std::vector<std::uint64_t> ready_ids(int events, int timeout_ms) {
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(events, ready.data(), ready.size(), timeout_ms);
  std::vector<std::uint64_t> ids;
  for (int at = 0; at < count; ++at) ids.push_back(ready.at(static_cast<std::size_t>(at)).data.u64);
  return ids;
}

}  // namespace

EventLoop::Task::Task(EventLoop& loop, const char* what, Run run)
    : loop_(loop),
      what_(what),
      run_(std::move(run)),
      events_(checked(::epoll_create1(EPOLL_CLOEXEC))),
      wake_event_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      serial_(loop.add(*this)) {
  add_or_throw(events_.get(), wake_event_.get(), kEvent);
  add_or_throw(loop.events_.get(), events_.get(), serial_);
}

void EventLoop::Task::wake() const {
  (void)::eventfd_write(wake_event_.get(), 1);  // fails only if the task is due already
}

bool EventLoop::Task::watch(int fd, std::uint64_t id) const {
  return add_event(events_.get(), fd, EPOLLIN | EPOLLONESHOT, id + 1);
}

void EventLoop::Task::stop() {
  (void)::epoll_ctl(loop_.events_.get(), EPOLL_CTL_DEL, events_.get(), nullptr);  // ENOENT: repeated
  loop_.remove(serial_);
}

std::vector<std::uint64_t> EventLoop::Task::take_readable() const {
  std::vector<std::uint64_t> ids = ready_ids(events_.get(), 0);
  eventfd_t value = 0;
  if (std::erase(ids, kEvent) > 0) (void)::eventfd_read(wake_event_.get(), &value);
  for (std::uint64_t& id : ids) --id;
  return ids;
}

EventLoop::EventLoop()
    : events_(checked(::epoll_create1(EPOLL_CLOEXEC))),
      stop_event_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  add_or_throw(events_.get(), stop_event_.get(), kEvent);
}

void EventLoop::start() {
  thread_ = std::thread([this] { run(); });
}

void EventLoop::stop() {
  if (!thread_.joinable()) return;
  (void)::eventfd_write(stop_event_.get(), 1);  // cannot fail: written once
  thread_.join();
}

void EventLoop::run_all() {
  std::vector<std::uint64_t> serials;
  {
    const MutexLock lock(mutex_);
    for (const auto& [serial, entry] : tasks_) serials.push_back(serial);
  }
  for (const std::uint64_t serial : serials) call(serial);
}

void EventLoop::run() {
  for (;;) {
    const auto ready = ready_ids(events_.get(), time_to_next());
    if (std::find(ready.begin(), ready.end(), kEvent) != ready.end()) return;
    for (const std::uint64_t serial : ready) call(serial);
    for (const std::uint64_t serial : due_tasks()) call(serial);
  }
}

// Returns milliseconds; -1: no task has a time.
int EventLoop::time_to_next() const {
  auto next = kNever;
  {
    const MutexLock lock(mutex_);
    for (const auto& [serial, entry] : tasks_) next = std::min(next, entry.due);
  }
  if (next == kNever) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(
      std::clamp<std::chrono::milliseconds::rep>(wait.count(), 0, std::numeric_limits<int>::max()));
}

std::vector<std::uint64_t> EventLoop::due_tasks() const {
  std::vector<std::uint64_t> serials;
  const auto now = Clock::now();
  const MutexLock lock(mutex_);
  for (const auto& [serial, entry] : tasks_) {
    if (entry.due <= now) serials.push_back(serial);
  }
  return serials;
}

// Does nothing if the task has ended meanwhile.
void EventLoop::call(std::uint64_t serial) {
  Task* task = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto found = tasks_.find(serial);
    if (found == tasks_.end()) return;
    task = found->second.task;
    running_ = serial;
  }
  auto due = Clock::now() + kRetry;
  (void)run_guarded(task->what_, [&] { due = task->run_(task->take_readable()); });
  {
    const MutexLock lock(mutex_);
    running_ = 0;
    if (const auto found = tasks_.find(serial); found != tasks_.end()) found->second.due = due;
  }
  call_ended_.notify_all();
}

std::uint64_t EventLoop::add(Task& task) {
  const MutexLock lock(mutex_);
  tasks_[++last_serial_] = {&task};
  return last_serial_;
}

void EventLoop::remove(std::uint64_t serial) {
  const MutexLock lock(mutex_);
  tasks_.erase(serial);
  while (running_ == serial) call_ended_.wait(mutex_);
}

}  // namespace cacheshim
