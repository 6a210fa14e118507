// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/name_forgetter.h"

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "store/threads/mutex.h"

namespace cacheshim {

// The thread may outlive the NameForgetter.
struct NameForgetter::Shared {
  explicit Shared(std::shared_ptr<const NoticeWriter> to) : writer(std::move(to)) {}

  const std::shared_ptr<const NoticeWriter> writer;
  Mutex mutex;  // not held while a notice is sent
  CondVar ended;
  bool is_sending GUARDED_BY(mutex) = false;
  bool is_stopping GUARDED_BY(mutex) = false;
};

NameForgetter::NameForgetter(std::shared_ptr<const NoticeWriter> writer)
    : shared_(std::make_shared<Shared>(std::move(writer))) {}

void NameForgetter::begin(std::vector<Notice> names) {
  const MutexLock lock(shared_->mutex);
  if (names.empty() || shared_->is_sending || shared_->is_stopping) return;
  try {
    std::thread([shared = shared_, names = std::move(names)] { run(shared, names); }).detach();
    shared_->is_sending = true;
  } catch (const std::system_error&) {
    // The system is out of threads. The caller tries again later.
  }
}

void NameForgetter::run(const std::shared_ptr<Shared>& shared, const std::vector<Notice>& names) {
  for (const Notice& name : names) {
    {
      const MutexLock lock(shared->mutex);
      if (shared->is_stopping) break;
    }
    shared->writer->send(name);
  }
  const MutexLock lock(shared->mutex);
  shared->is_sending = false;
  shared->ended.notify_all();
}

bool NameForgetter::stop() {
  constexpr std::chrono::milliseconds kPatience{100};
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const MutexLock lock(shared_->mutex);
  shared_->is_stopping = true;
  while (shared_->is_sending && shared_->ended.wait_until(shared_->mutex, end)) continue;
  return !shared_->is_sending;
}

}  // namespace cacheshim
