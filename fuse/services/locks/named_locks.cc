// SPDX-License-Identifier: Apache-2.0
#include "fuse/services/locks/named_locks.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// For unlock requests that the daemon itself makes: ignores the answer.
class IgnoredReply final : public LockReply {
  void wait(std::uint64_t) override {}
  void answer(int) override {}
};

LockTable::Opener opener_of(const NamedLocks::Lock& lock) {
  return [lock] { return sys::reopen(lock->object.get(), O_PATH); };
}

Result<NamedLocks::Lock> make_lock(std::string path, UniqueFd object) {
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  return std::make_shared<const NamedLock>(
      NamedLock{std::move(path), std::move(object), {st.st_dev, st.st_ino}});
}

}  // namespace

class NamedLocks::CheckedReply final : public LockReply {
 public:
  CheckedReply(NamedLocks& locks, FileHandle& handle, Lock lock, const LockRequest& request,
               std::unique_ptr<LockReply> reply, int attempts)
      : locks_(locks),
        handle_(handle),
        lock_(std::move(lock)),
        request_(request),
        reply_(std::move(reply)),
        attempts_(attempts) {}

  void wait(std::uint64_t ticket) override { reply_->wait(ticket); }

  void answer(int error) override {
    const bool is_granted = error == 0 && request_.type != F_UNLCK;
    if (!is_granted || locks_.is_current(*lock_)) return reply_->answer(error);
    locks_.granted_on_stale_file(handle_, lock_, request_, std::move(reply_), attempts_);
  }

 private:
  NamedLocks& locks_;
  FileHandle& handle_;
  const Lock lock_;
  const LockRequest request_;
  std::unique_ptr<LockReply> reply_;
  const int attempts_;
};

NamedLocks::Lock NamedLocks::of(const FileHandle& handle) {
  const std::vector<Lock> locks = all_of(handle);
  return locks.empty() ? nullptr : locks.back();
}

NamedLocks::Lock NamedLocks::use(FileHandle& handle) {
  if (count_ == 0) return nullptr;
  const MutexLock guard(mutex_);
  const auto found = entries_.find(handle.node);
  if (found == entries_.end()) return nullptr;
  if (!handle.uses_named_lock.exchange(true)) ++found->second.handles;
  return found->second.locks.back();
}

Result<NamedLocks::Lock> NamedLocks::add(FileHandle& handle, std::string path, UniqueFd object) {
  CACHESHIM_TRY(made, make_lock(std::move(path), std::move(object)));
  const MutexLock guard(mutex_);
  Entry& entry = entries_[handle.node];
  count_ = entries_.size();
  // Another thread may have added a lock in the meantime.
  if (entry.locks.empty()) entry.locks.push_back(std::move(made));
  if (!handle.uses_named_lock.exchange(true)) ++entry.handles;
  return entry.locks.back();
}

std::vector<NamedLocks::Lock> NamedLocks::all_of(const FileHandle& handle) {
  if (count_ == 0) return {};
  const MutexLock guard(mutex_);
  const auto found = entries_.find(handle.node);
  return found == entries_.end() ? std::vector<Lock>() : found->second.locks;
}

bool NamedLocks::is_current(const NamedLock& lock) const {
  const auto found = files_.find(lock.path);
  return found && found->st.st_dev == lock.id.device && found->st.st_ino == lock.id.inode;
}

// Replaces `stale` with a lock on the base's current file, unless another thread has done that. Returns the current
// lock.
Result<NamedLocks::Lock> NamedLocks::replace(const FileHandle& handle, const Lock& stale) {
  CACHESHIM_TRY(object, files_.ensure(stale->path));
  CACHESHIM_TRY(made, make_lock(stale->path, std::move(object)));
  const MutexLock guard(mutex_);
  std::vector<Lock>& locks = entries_[handle.node].locks;
  if (locks.back() != stale) return locks.back();
  std::erase_if(locks, [this](const Lock& lock) { return !table_.is_in_use(lock->id); });
  locks.push_back(std::move(made));
  return locks.back();
}

void NamedLocks::unlock(const NamedLock& lock, LockRequest request) {
  request.type = F_UNLCK;
  request.waits = false;
  const auto open = [&lock] { return sys::reopen(lock.object.get(), O_PATH); };
  table_.lock(lock.id, open, request, std::make_unique<IgnoredReply>());
}

void NamedLocks::lock_again(FileHandle& handle, Lock lock, const LockRequest& request,
                            std::unique_ptr<LockReply> reply, int attempts) {
  if (request.type == F_UNLCK) {
    for (const Lock& each : all_of(handle)) {
      if (each != lock) unlock(*each, request);
    }
  }
  const auto open = opener_of(lock);
  const LockFileId id = lock->id;
  table_.lock(id, open, request,
              std::make_unique<CheckedReply>(*this, handle, std::move(lock), request,
                                             std::move(reply), attempts));
}

void NamedLocks::granted_on_stale_file(FileHandle& handle, const Lock& lock,
                                       const LockRequest& request, std::unique_ptr<LockReply> reply,
                                       int attempts) {
  unlock(*lock, request);
  if (attempts == 0) return reply->answer(request.waits ? ENOLCK : EAGAIN);
  auto next = replace(handle, lock);
  if (!next) return reply->answer(ENOLCK);
  lock_again(handle, *std::move(next), request, std::move(reply), attempts - 1);
}

int NamedLocks::find(const Lock& lock, const LockRequest& request, struct flock& found) {
  return table_.find(lock->id, opener_of(lock), request, found);
}

void NamedLocks::closed(const FileHandle& handle, std::uint64_t fh, std::uint64_t owner) {
  for (const Lock& lock : all_of(handle)) table_.closed(lock->id, fh, owner);
}

void NamedLocks::released(FileHandle& handle, std::uint64_t fh) {
  if (!handle.uses_named_lock) return;
  const std::vector<Lock> locks = all_of(handle);
  for (const Lock& lock : locks) table_.released(lock->id, fh);
  const MutexLock guard(mutex_);
  const auto found = entries_.find(handle.node);
  if (--found->second.handles == 0) entries_.erase(found);
  count_ = entries_.size();
}

}  // namespace cacheshim
