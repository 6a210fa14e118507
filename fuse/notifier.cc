// SPDX-License-Identifier: Apache-2.0
#include "fuse/notifier.h"

#include <linux/fuse.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace cacheshim {
namespace {

// linux/fuse.h since 6.2; older kernels take such a notice for an invalidation, which is as right.
constexpr std::uint32_t kExpireOnly = 1;

}  // namespace

Notifier::Notifier(int fuse_fd) : fuse_fd_(fuse_fd), thread_([this] { run(); }) {}

Notifier::~Notifier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool Notifier::targets_any(const std::vector<FolderId>& held) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const Batch& batch) {
    return std::any_of(batch.notices.begin(), batch.notices.end(), [&](const Notice& notice) {
      return std::find(held.begin(), held.end(), notice.folder) != held.end();
    });
  });
}

void Notifier::post(std::vector<Notice> notices, std::vector<FolderId> held,
                    std::function<void()> done) {
  bool answer_now = false;
  {
    const std::lock_guard lock(mutex_);
    answer_now = notices.empty() || targets_any(held);
    if (!notices.empty()) {
      queue_.push_back({std::move(notices), answer_now ? [] {} : std::exchange(done, [] {})});
    }
  }
  wake_.notify_one();
  if (answer_now) done();
}

void Notifier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Batch& batch = queue_.front();  // stays in front: post() looks at its notices
    lock.unlock();
    for (const Notice& notice : batch.notices) send(notice);
    batch.done();
    lock.lock();
    queue_.pop_front();
  }
}

void Notifier::send(const Notice& notice) const {
  fuse_notify_inval_entry_out body{};
  body.parent = notice.folder;
  body.namelen = static_cast<std::uint32_t>(notice.name.size());
  // Its last word is `flags` since 6.2 and `padding` before: the same place under either name.
  static_assert(sizeof body == 16);
  std::memcpy(reinterpret_cast<char*>(&body) + 12, &kExpireOnly, sizeof kExpireOnly);
  fuse_out_header header{};
  header.len = static_cast<std::uint32_t>(sizeof header + sizeof body + notice.name.size() + 1);
  header.error = FUSE_NOTIFY_INVAL_ENTRY;
  iovec parts[] = {{&header, sizeof header},
                   {&body, sizeof body},
                   {const_cast<char*>(notice.name.c_str()), notice.name.size() + 1}};
  // ENOENT: the kernel has nothing cached under that name. Nothing else can be done about the rest.
  (void)!::writev(fuse_fd_, parts, 3);
}

}  // namespace cacheshim
