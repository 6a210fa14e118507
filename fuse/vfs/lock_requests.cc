// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/lock_requests.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>

#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "store/overlay/common_names.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

// Whether the range is valid, and its end fits into off_t. The kernel sends only such ranges, but libfuse does not
// check them.
bool is_valid_range(const struct flock& lock) {
  constexpr off_t kMostOffset = std::numeric_limits<off_t>::max();
  return lock.l_start >= 0 && lock.l_len >= 0 && lock.l_len <= kMostOffset - lock.l_start;
}

// A pending lock request of the kernel.
class PendingLock final : public LockReply, public Interruptible {
 public:
  PendingLock(LockTable& locks, StatusCompletion completion)
      : locks_(locks), completion_(std::move(completion)) {}

  void wait(std::uint64_t ticket) override {
    ticket_ = ticket;
    completion_.watch(this);
  }
  void answer(int error) override {
    if (ticket_ != 0) completion_.watch(nullptr);
    completion_.complete(error == 0 ? Status() : Errno(error));
  }
  void interrupt() override { locks_.interrupt(ticket_); }

 private:
  LockTable& locks_;
  StatusCompletion completion_;
  std::uint64_t ticket_ = 0;  // 0: the request is not waiting
};

// The reply to a lock request. When the lock is granted, this class first runs `before`, which must call its argument
// to send the reply.
class ReplyAfterGrant final : public LockReply {
 public:
  using Before = std::function<void(std::function<void()> answer)>;
  ReplyAfterGrant(std::unique_ptr<LockReply> reply, Before before)
      : reply_(std::move(reply)), before_(std::move(before)) {}

  void wait(std::uint64_t ticket) override { reply_->wait(ticket); }
  void answer(int error) override {
    if (error != 0) return reply_->answer(error);
    before_([reply = reply_] { reply->answer(0); });
  }

 private:
  const std::shared_ptr<LockReply> reply_;
  const Before before_;
};

short lock_type(int operation) {
  if ((operation & LOCK_UN) != 0) return F_UNLCK;
  return (operation & LOCK_EX) != 0 ? F_WRLCK : F_RDLCK;
}

}  // namespace

LockFileId LockRequests::lock_file_id(const FileHandle& handle) const {
  if (handle.is_lock_file) return {handle.device, handle.inode};
  if (const auto inode = mount_.nodes.objects().locked_inode(handle.node))
    return {inode->device, inode->inode};
  return {0, handle.node};
}

// Returns a function that opens the file on which the handle's locks are taken. If the handle's file was copied when it
// became a lock file, the function opens the copy; the handle's own descriptor still leads to the original.
LockTable::Opener LockRequests::opener_of(const FileHandle& handle) const {
  return [this, &handle]() -> Result<UniqueFd> {
    const NodeInfo info = mount_.nodes.info(handle.node);
    const bool has_moved = !handle.is_lock_file && info.object_fd() >= 0;
    return sys::reopen(has_moved ? info.object_fd() : handle.fd.get(), O_PATH);
  };
}

void LockRequests::lock_by_inode(NodeIndex node, const LockTable::Opener& open) {
  if (mount_.nodes.objects().locked_inode(node)) return;
  mount_.nodes.state(node).lock_by_inode();
  const auto inode = mount_.nodes.objects().locked_inode(node);
  mount_.locks.move({0, node}, {inode->device, inode->inode}, open);
}

Status LockRequests::settle_lock_name(NodeIndex node, Job& job, const std::string& path,
                                      UniqueFd new_lock) {
  if (new_lock) {
    CACHESHIM_TRY(st, sys::stat_fd(new_lock.get()));
    mount_.nodes.objects().become_common(
        node, {common_kind(mount_.entries, path), st, std::move(new_lock)});
    const NodeInfo info = mount_.nodes.info(node);
    lock_by_inode(node, [&info] { return sys::reopen(info.object_fd(), O_PATH); });
    return {};
  }
  const bool was_common = mount_.nodes.info(node).common != CommonKind::kNone;
  if (!was_common || job.overlay.locks().files.is_shared_name(path)) return {};
  CACHESHIM_TRY(found, job.overlay.find(path));
  mount_.nodes.objects().become_own(node, found.st);
  return {};
}

LockRequest LockRequests::lock_request(const Request& request, const FileHandle& handle,
                                       std::uint64_t fh) const {
  LockRequest wanted;
  wanted.owner = wanted.handle = fh;
  wanted.process = request.lock_process;
  wanted.reports_close = handle.reports_close;
  wanted.shown_inode = mount_.nodes.info(handle.node).ino;
  wanted.account = &mount_.limits.account(request.caller.uid);
  return wanted;
}

LockRequest LockRequests::record_request(const Request& request, const FileHandle& handle,
                                         const LockTarget& target, const struct flock& lock) const {
  LockRequest wanted = lock_request(request, handle, target.fh);
  wanted.is_record = true;
  wanted.owner = target.owner;
  wanted.type = lock.l_type;
  wanted.start = lock.l_start;
  wanted.length = lock.l_len;
  return wanted;
}

Result<std::string> LockRequests::path_of(const FileHandle& handle) const {
  const ReaderLock lock(handle.job->overlay.mutex());
  return mount_.nodes.path(handle.node);
}

// Returns the objects that the job has built under the lock that `wanted` releases, and removes them from the job's
// record.
std::vector<std::string> LockRequests::built_under(const FileHandle& handle,
                                                   const LockRequest& wanted) {
  if (wanted.type != F_UNLCK || !handle.job->pending.has_built()) return {};
  const auto named = mount_.named_locks.of(handle);
  if (!named && !handle.is_lock_file) return {};
  if (!mount_.locks.releases_exclusive(named ? named->id : lock_file_id(handle), wanted)) return {};
  const Result<std::string> path = path_of(handle);
  return path ? mount_.publishing.take_built(*handle.job, *path) : std::vector<std::string>();
}

// Makes a published entry visible before the lock that protects its build is granted. Otherwise this could happen:
// 1. The caller's job writes into an entry before it has the lock.
// 2. Another job publishes the entry.
// 3. The caller's job gets the lock, but its own copies hide the published files.
void LockRequests::before_grant(const FileHandle& handle, std::function<void()> answer) {
  const Result<std::string> path = path_of(handle);
  const std::string entry = path ? mount_.entries.entry_built_under(*path) : "";
  if (entry.empty()) return answer();
  Job& job = *handle.job;
  {
    const ReaderLock lock(job.overlay.mutex());
    if (!job.overlay.has_own_directory(entry)) return answer();
  }
  mount_.publishing.show_published(job, entry, std::move(answer));
}

// Call when a lock is released without an unlock, because its holder has closed the handle or exited. The files that
// this holder wrote under the lock must not count as built by the next holder.
void LockRequests::forget_built(const FileHandle& handle, bool is_record, std::uint64_t owner) {
  LockRequest unlock;
  unlock.is_record = is_record;
  unlock.owner = owner;
  (void)built_under(handle, unlock);
}

// A lock on a file of the base can block other users, so it counts as a change.
bool LockRequests::may_share_lock(const Request& request, const FileHandle& handle, LockUse use) {
  if (use == LockUse::kLock &&
      !change_guard_.note_change(request, encode({handle.node, handle.slot})))
    return false;
  return handle.job->policy.may_publish() &&
         (use == LockUse::kLock || mount_.trust.may_publish(request.caller));
}

// Returns the file of the base on which the locks of the handle's file are taken (NamedLocks). Returns null for a lock
// file of the base, because the lock is taken on that file itself. Also returns null if the lock excludes only the
// job's own processes, that is:
// - for names that cannot become locks (EntryMap::may_become_lock);
// - for files larger than kMostLockBytes;
// - for jobs that may not publish;
// - while a process holds, or waits for, a lock on the job's own file.
NamedLocks::Lock LockRequests::named_lock_of(const Request& request, FileHandle& handle,
                                             LockUse use) {
  if (handle.is_lock_file) return nullptr;
  auto known = mount_.named_locks.of(handle);
  if (use == LockUse::kUnlock) return known;
  Overlay& overlay = handle.job->overlay;
  const auto path = path_of(handle);
  if (!known && (!path || !overlay.locks().named.may_become_lock(*path))) return nullptr;
  if (!known && mount_.locks.is_wanted({0, handle.node})) return nullptr;
  if (!may_share_lock(request, handle, use)) return handle.uses_named_lock ? known : nullptr;
  if (known) known = mount_.named_locks.use(handle);
  if (known || !path) return known;
  auto object = [&] {
    const ReaderLock lock(overlay.mutex());
    return open_named_lock(overlay, *path, /*makes=*/use == LockUse::kLock);
  }();
  if (!object) {
    spdlog::debug("'{}' is locked among the processes of job '{}' alone: {}", *path, handle.job->id,
                  std::strerror(object.error().code()));
    return nullptr;
  }
  if (const auto st = sys::stat_fd(object->get()))
    mount_.keeper.note_use(object->get(), *st, O_RDONLY);
  auto added = mount_.named_locks.add(handle, *path, *std::move(object));
  return added ? *std::move(added) : nullptr;
}

// The handle outlives the request: the kernel sends RELEASE only after the reply.
void LockRequests::set_lock(const Request& request, FileHandle& handle, const LockRequest& wanted,
                            StatusCompletion completion) {
  std::unique_ptr<LockReply> reply =
      std::make_unique<PendingLock>(mount_.locks, std::move(completion));
  const auto use = wanted.type == F_UNLCK ? LockUse::kUnlock : LockUse::kLock;
  const auto named = named_lock_of(request, handle, use);
  if (wanted.type != F_UNLCK && (named || handle.is_lock_file)) {
    reply = std::make_unique<ReplyAfterGrant>(std::move(reply), [this, &handle](auto answer) {
      before_grant(handle, std::move(answer));
    });
  }
  const auto set = [this, &handle, wanted, named](std::unique_ptr<LockReply> pending) {
    if (named) return mount_.named_locks.lock(handle, named, wanted, std::move(pending));
    mount_.locks.lock(lock_file_id(handle), opener_of(handle), wanted, std::move(pending));
  };
  std::vector<std::string> built = built_under(handle, wanted);
  if (built.empty()) return set(std::move(reply));
  mount_.publishing.built(*handle.job, std::move(built), {},
                          [set, pending = std::make_shared<std::unique_ptr<LockReply>>(
                                    std::move(reply))] { set(std::move(*pending)); });
}

// A compile cache writes a file once, through the handle that created it, and then only reads it. A process that opens
// an existing file for reading and writing may be a database, which is likely to lock the file.
bool LockRequests::needs_flush(NodeIndex node, int flags, bool is_new_copy) const {
  if ((flags & O_ACCMODE) == O_RDWR && (flags & O_CREAT) == 0 && !is_new_copy) return true;
  return mount_.nodes.state(node).takes_locks() || mount_.nodes.name(node).ends_with(".lock");
}

// A baton excludes other processes by its existence, so the daemon removes it when its creator dies. But if a process
// has locked the baton, the lock excludes the other processes, and the daemon must not remove the file.
void LockRequests::note_locked(const FileHandle& handle) {
  if (mount_.nodes.state(handle.node).takes_locks()) return;
  mount_.nodes.state(handle.node).set_takes_locks();
  const auto path = path_of(handle);
  if (path && mount_.batons.is_baton(*path)) mount_.batons.forget(*handle.job, *path);
}

void LockRequests::flock(const Request& request, std::uint64_t fh, int operation,
                         StatusCompletion completion) {
  FileHandle* const handle = mount_.handles.file(fh);
  if (handle == nullptr) return completion.complete(Errno(EOPNOTSUPP));
  LockRequest wanted = lock_request(request, *handle, fh);
  wanted.type = lock_type(operation);
  if (wanted.type != F_UNLCK) note_locked(*handle);
  wanted.waits = (operation & LOCK_NB) == 0;
  set_lock(request, *handle, wanted, std::move(completion));
}

void LockRequests::setlk(const Request& request, const LockTarget& target, const struct flock& lock,
                         bool waits, StatusCompletion completion) {
  FileHandle* const handle = mount_.handles.file(target.fh);
  if (handle == nullptr) return completion.complete(Errno(EOPNOTSUPP));
  if (!is_valid_range(lock)) return completion.complete(Errno(EINVAL));
  if (lock.l_type != F_UNLCK) note_locked(*handle);
  LockRequest wanted = record_request(request, *handle, target, lock);
  wanted.waits = waits;
  wanted.thread = request.caller.tid;
  // The request's own handle counts too: a duplicate of its descriptor may stay open, for example in
  // a child.
  wanted.has_silent_handles = mount_.nodes.state(handle->node).silent_handles() > 0;
  set_lock(request, *handle, wanted, std::move(completion));
}

Result<struct flock> LockRequests::getlk(const Request& request, const LockTarget& target,
                                         const struct flock& lock) {
  FileHandle* const handle = mount_.handles.file(target.fh);
  if (handle == nullptr) return Errno(EOPNOTSUPP);
  if (!is_valid_range(lock)) return Errno(EINVAL);
  const LockRequest wanted = record_request(request, *handle, target, lock);
  struct flock found {};
  const auto named = named_lock_of(request, *handle, LockUse::kFind);
  const int error =
      named ? mount_.named_locks.find(named, wanted, found)
            : mount_.locks.find(lock_file_id(*handle), opener_of(*handle), wanted, found);
  if (error != 0) return Errno(error);
  return found;
}

Status LockRequests::flush(const Request& request, const LockTarget& target) {
  FileHandle* const handle = mount_.handles.file(target.fh);
  if (handle == nullptr) return {};
  // Commits the copy before it releases the locks, because another process may read the file as soon as they are
  // released.
  const Status committed =
      handle->shared ? mount_.shared_files.commit(*handle, request.caller.tid) : Status();
  forget_built(*handle, /*is_record=*/true, target.owner);
  mount_.locks.closed(lock_file_id(*handle), target.fh, target.owner);
  mount_.named_locks.closed(*handle, target.fh, target.owner);
  return committed;
}

void LockRequests::release_locks(FileHandle& handle, std::uint64_t fh) {
  ++mount_.releases;
  forget_built(handle, /*is_record=*/false, fh);
  mount_.locks.released(lock_file_id(handle), fh);
  mount_.named_locks.released(handle, fh);
  --mount_.releases;
}

}  // namespace cacheshim
