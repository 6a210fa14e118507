// SPDX-License-Identifier: Apache-2.0
#include "store/sys/environment_reader.h"

#include <spdlog/spdlog.h>

#include <deque>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "store/sys/process.h"
#include "store/threads/guard.h"
#include "store/threads/mutex.h"

namespace cacheshim {
namespace {

using Clock = std::chrono::steady_clock;

struct Task {
  pid_t pid;
  uid_t uid;
  std::string proc;
  bool is_overdue = false;  // the caller has stopped waiting for the result
  std::optional<Result<std::string>> result = std::nullopt;
};

struct User {
  bool has_task = false;    // a task of the user is queued or in progress
  bool is_overdue = false;  // this read has already taken too long
  Clock::time_point excluded_until{};

  bool is_excluded() const { return is_overdue || excluded_until > Clock::now(); }
};

Result<std::string> read_environment(pid_t pid, const std::string& proc) {
  return read_proc(pid, "environ", proc);
}

}  // namespace

struct EnvironmentReader::State {
  State(Read read, Limits given) : read_file(std::move(read)), limits(given) {}

  Result<std::string> read(const std::shared_ptr<State>& self, const std::shared_ptr<Task>& task)
      EXCLUDES(mutex);
  bool post(const std::shared_ptr<State>& self, const std::shared_ptr<Task>& task) REQUIRES(mutex);
  void exclude(uid_t uid) REQUIRES(mutex);
  void run() EXCLUDES(mutex);

  const Read read_file;
  const Limits limits;
  Mutex mutex;
  CondVar changed;  // a task or result was added, a user excluded, or the reader closed
  std::deque<std::shared_ptr<Task>> tasks GUARDED_BY(mutex);
  // The users for whom a task is queued or in progress, and the excluded users.
  std::unordered_map<uid_t, User> users GUARDED_BY(mutex);
  int threads GUARDED_BY(mutex) = 0;
  int idle GUARDED_BY(mutex) = 0;  // threads without a task
  bool is_closed GUARDED_BY(mutex) = false;
};

// At most one task per user is in progress. When it ends, the map drops the user, unless the user is excluded. So
// besides the excluded users, the map has at most one user for each call to read() in progress.
Result<std::string> EnvironmentReader::State::read(const std::shared_ptr<State>& self,
                                                   const std::shared_ptr<Task>& task) {
  const auto deadline = Clock::now() + limits.read;
  const MutexLock lock(mutex);
  for (;;) {
    const User& user = users[task->uid];
    if (user.is_excluded()) return Errno(ETIMEDOUT);
    if (!user.has_task) break;
    if (!changed.wait_until(mutex, deadline)) return Errno(ETIMEDOUT);
  }
  if (!post(self, task)) {
    users.erase(task->uid);
    return Errno(ETIMEDOUT);
  }
  users[task->uid].has_task = true;
  changed.notify_all();
  while (!task->result && changed.wait_until(mutex, deadline)) {
  }
  if (task->result) return *std::move(task->result);
  task->is_overdue = true;
  users[task->uid].is_overdue = true;
  exclude(task->uid);
  spdlog::warn(
      "uid {}: reading the environment of process {} takes too long, perhaps because its memory map is "
      "locked; processes of this user get the job uid-{} for a while",
      task->uid, task->pid, task->uid);
  return Errno(ETIMEDOUT);
}

// Returns false if no thread is free and no more threads can be started.
bool EnvironmentReader::State::post(const std::shared_ptr<State>& self,
                                    const std::shared_ptr<Task>& task) {
  if (idle <= static_cast<int>(tasks.size())) {
    if (threads >= limits.threads) return false;
    try {
      std::thread([self] { self->run(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++threads;
    ++idle;
  }
  tasks.push_back(task);
  return true;
}

void EnvironmentReader::State::exclude(uid_t uid) {
  std::erase_if(users, [](const auto& known) {
    return !known.second.has_task && !known.second.is_excluded();
  });
  users[uid].excluded_until = Clock::now() + limits.exclusion;
  changed.notify_all();
}

void EnvironmentReader::State::run() {
  ReleasableMutexLock lock(mutex);
  for (;;) {
    while (tasks.empty() && !is_closed) changed.wait(mutex);
    if (tasks.empty()) return;
    const std::shared_ptr<Task> task = std::move(tasks.front());
    tasks.pop_front();
    --idle;
    lock.unlock();
    Result<std::string> result = Errno(ENOMEM);
    (void)run_guarded("reading an environment",
                      [&] { result = read_file(task->pid, task->proc); });
    lock.lock();
    ++idle;
    task->result = std::move(result);
    users[task->uid].has_task = false;
    if (task->is_overdue) {
      users[task->uid].is_overdue = false;
      exclude(task->uid);
    } else {
      users.erase(task->uid);
    }
    changed.notify_all();
  }
}

EnvironmentReader::EnvironmentReader() : EnvironmentReader(read_environment, Limits()) {}

EnvironmentReader::EnvironmentReader(Read read, Limits limits)
    : state_(std::make_shared<State>(std::move(read), limits)) {}

EnvironmentReader::~EnvironmentReader() {
  const MutexLock lock(state_->mutex);
  state_->is_closed = true;
  state_->changed.notify_all();
}

Result<std::string> EnvironmentReader::read(pid_t pid, uid_t uid, const std::string& proc) {
  if (uid == 0) return state_->read_file(pid, proc);
  return state_->read(state_, std::make_shared<Task>(Task{pid, uid, proc}));
}

}  // namespace cacheshim
