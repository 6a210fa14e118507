// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/freshness/notifier.h"

#include <linux/fuse.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "store/sys/guard.h"

namespace cacheshim {
namespace {

// FUSE_EXPIRE_ONLY, in linux/fuse.h since 6.2. Older kernels treat the notification as
// an invalidation, which is also correct.
constexpr std::uint32_t kExpireOnly = 1;
constexpr std::int32_t kIncreaseEpoch = 8;  // FUSE_NOTIFY_INC_EPOCH, linux/fuse.h since 6.16

// Values of fuse_notify_inval_inode_out::off.
constexpr std::int64_t kFromTheFirstPage = 0;
constexpr std::int64_t kAttributesAlone = -1;

fuse_out_header header_of(std::int32_t code, std::size_t body_bytes) {
  fuse_out_header header{};
  header.len = static_cast<std::uint32_t>(sizeof header + body_bytes);
  header.error = code;
  return header;
}

}  // namespace

Notifier::Notifier(int fuse_fd) : fuse_fd_(fuse_fd), thread_([this] { run(); }) {}

void Notifier::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool Notifier::targets_any(const std::vector<DirectoryId>& held) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const Batch& batch) {
    return std::any_of(batch.notices.begin(), batch.notices.end(), [&](const Notice& notice) {
      return notice.kind == Notice::Kind::kName &&
             std::find(held.begin(), held.end(), notice.directory) != held.end();
    });
  });
}

void Notifier::post(std::vector<Notice> notices, std::vector<DirectoryId> held,
                    std::function<void()> done) {
  bool answer_now = false;
  {
    const MutexLock lock(mutex_);
    answer_now = notices.empty() || stopping_ || targets_any(held);
    if (!notices.empty() && !stopping_) {
      auto then = answer_now ? [] {} : std::exchange(done, [] {});
      queue_.push_back({std::move(notices), std::move(then), false});
    }
  }
  wake_.notify_one();
  if (answer_now) done();
}

void Notifier::invalidate_attributes(const std::vector<DirectoryId>& nodes) const {
  for (const DirectoryId node : nodes) send_node(node, kAttributesAlone);
}

void Notifier::run() {
  const MutexLock lock(mutex_);
  for (;;) {
    while (!stopping_ && queue_.empty() && repeats_.empty()) wake_.wait(mutex_);
    while (!stopping_ && queue_.empty() && wake_.wait_until(mutex_, repeats_.front().due)) continue;
    if (!queue_.empty()) {
      run_front();
    } else if (stopping_) {
      return;
    }
    queue_due_repeats();
  }
}

void Notifier::run_front() {
  Batch& batch = queue_.front();  // stays at the front: post() examines its notifications
  mutex_.unlock();
  (void)run_guarded("invalidating names", [&] {
    for (const Notice& notice : batch.notices) send(notice);
  });
  (void)run_guarded("an answer", batch.done);
  mutex_.lock();
  if (!batch.is_repeat) {
    std::erase_if(batch.notices, [](const Notice& n) { return n.kind != Notice::Kind::kName; });
    if (!batch.notices.empty()) {
      repeats_.push_back({Clock::now() + kRepeatAfter, std::move(batch.notices)});
    }
  }
  queue_.pop_front();
}

// Appends the due repeats to the queue, where post() finds them as it finds any other notification.
void Notifier::queue_due_repeats() {
  while (!repeats_.empty() && repeats_.front().due <= Clock::now()) {
    queue_.push_back({std::move(repeats_.front().notices), [] {}, true});
    repeats_.pop_front();
  }
}

void Notifier::send(const Notice& notice) const {
  switch (notice.kind) {
    case Notice::Kind::kName:
      return send_name(notice);
    case Notice::Kind::kNode:
      return send_node(notice.directory, kFromTheFirstPage);
    case Notice::Kind::kEpoch:
      return send_epoch();
  }
}

// The three functions below ignore errors: ENOENT means that the kernel has cached nothing, and
// other errors have no remedy.
void Notifier::send_name(const Notice& notice) const {
  fuse_notify_inval_entry_out body{};
  body.parent = notice.directory;
  body.namelen = static_cast<std::uint32_t>(notice.name.size());
  // The last word is `flags` since 6.2 and `padding` before: the same position with either name.
  static_assert(sizeof body == 16);
  std::memcpy(reinterpret_cast<char*>(&body) + 12, &kExpireOnly, sizeof kExpireOnly);
  fuse_out_header header = header_of(FUSE_NOTIFY_INVAL_ENTRY, sizeof body + notice.name.size() + 1);
  iovec parts[] = {{&header, sizeof header},
                   {&body, sizeof body},
                   {const_cast<char*>(notice.name.c_str()), notice.name.size() + 1}};
  (void)!::writev(fuse_fd_, parts, 3);
}

void Notifier::send_node(DirectoryId node, std::int64_t offset) const {
  fuse_notify_inval_inode_out body{};
  body.ino = node;
  body.off = offset;
  body.len = 0;  // to the last page
  fuse_out_header header = header_of(FUSE_NOTIFY_INVAL_INODE, sizeof body);
  iovec parts[] = {{&header, sizeof header}, {&body, sizeof body}};
  (void)!::writev(fuse_fd_, parts, 2);
}

void Notifier::send_epoch() const {
  fuse_out_header header = header_of(kIncreaseEpoch, 0);
  (void)!::write(fuse_fd_, &header, sizeof header);
}

}  // namespace cacheshim
