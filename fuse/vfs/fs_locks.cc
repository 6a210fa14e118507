// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>

#include <cstring>
#include <memory>
#include <utility>

#include "fuse/vfs/filesystem.h"
#include "store/layer/baton_record.h"
#include "store/sys/paths.h"
#include "store/sys/process.h"
#include "store/sys/raw_locks.h"
#include "store/sys/sys.h"

// flock(2) and fcntl(2) locks. The kernel hands all of them over (FUSE_CAP_FLOCK_LOCKS is for the whole
// mount), LockTable does the rest.
//
// The kernel reports the close of a descriptor, which releases a process's record locks, by FLUSH. This is a
// round trip: without it an open, read and close takes 9 µs instead of 13. The daemon has to ask for it at the
// open or never. So a handle asks for it if a lock is likely (tells_of_close()); the others are silent. If the
// file is locked while they are open, LockQueue checks the process's descriptors in /proc.
namespace cacheshim {
namespace {

// A lock request of the kernel.
class PendingLock final : public LockCall, public Interruptible {
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
  std::uint64_t ticket_ = 0;  // 0: it does not wait
};

// Before a request is told that it has the lock, `before` runs and calls what it is given.
class GrantedCall final : public LockCall {
 public:
  using Before = std::function<void(std::function<void()> answer)>;
  GrantedCall(std::unique_ptr<LockCall> call, Before before)
      : call_(std::move(call)), before_(std::move(before)) {}

  void wait(std::uint64_t ticket) override { call_->wait(ticket); }
  void answer(int error) override {
    if (error != 0) return call_->answer(error);
    before_([call = call_] { call->answer(0); });
  }

 private:
  const std::shared_ptr<LockCall> call_;
  const Before before_;
};

short lock_type(int operation) {
  if ((operation & LOCK_UN) != 0) return F_UNLCK;
  return (operation & LOCK_EX) != 0 ? F_WRLCK : F_RDLCK;
}

}  // namespace

// Rings have a queue for each core: a RELEASE that waits in one is not known of.
LockSystem Filesystem::lock_system() {
  LockSystem system = LockSystem::real();
  system.is_releasing = [this] { return is_asked_by_rings_ || releases_ > 0; };
  return system;
}

LockFileId Filesystem::lock_file_id(const FileHandle& handle) const {
  if (handle.is_lock_file) return {handle.device, handle.inode};
  if (const auto inode = nodes_.locked_inode(handle.node)) return {inode->device, inode->inode};
  return {0, handle.node};
}

// The handle's own descriptor may be of a file that was copied to become a lock file.
LockTable::Opener Filesystem::opener_of(const FileHandle& handle) const {
  return [this, &handle]() -> Result<UniqueFd> {
    const NodeInfo info = nodes_.info(handle.node);
    const bool has_moved = !handle.is_lock_file && info.object_fd() >= 0;
    return sys::reopen(has_moved ? info.object_fd() : handle.fd.get(), O_PATH);
  };
}

// From now on the locks of the node's file are those of its inode: those that are held as well.
void Filesystem::lock_by_inode(NodeIndex node, const LockTable::Opener& open) {
  if (nodes_.locked_inode(node)) return;
  nodes_.lock_by_inode(node);
  const auto inode = nodes_.locked_inode(node);
  locks_.move({0, node}, {inode->device, inode->inode}, open);
}

// The node's file has been renamed to `path`, which may have made it a lock file of the base, `new_lock`, or the job's
// own. With Overlay::mutex() held exclusively.
Status Filesystem::settle_lock_name(NodeIndex node, Job& job, const std::string& path,
                                    UniqueFd new_lock) {
  if (new_lock) {
    CACHESHIM_TRY(st, sys::stat_fd(new_lock.get()));
    nodes_.become_common(node, {common_kind(path), st, std::move(new_lock)});
    const NodeInfo info = nodes_.info(node);
    lock_by_inode(node, [&info] { return sys::reopen(info.object_fd(), O_PATH); });
    return {};
  }
  const bool was_common = nodes_.info(node).common != Common::kNone;
  if (!was_common || job.overlay.is_shared_lock_name(path)) return {};
  CACHESHIM_TRY(found, job.overlay.find(path));
  nodes_.become_own(node, found.st);
  return {};
}

LockWish Filesystem::lock_wish(const Request& request, const FileHandle& handle,
                               std::uint64_t fh) const {
  LockWish wish;
  wish.owner = wish.handle = fh;
  wish.process = request.lock_process;
  wish.tells_close = handle.tells_close;
  wish.shown_inode = nodes_.info(handle.node).ino;
  return wish;
}

LockWish Filesystem::record_wish(const Request& request, const FileHandle& handle,
                                 const LockTarget& target, const struct flock& lock) const {
  LockWish wish = lock_wish(request, handle, target.fh);
  wish.is_record = true;
  wish.owner = target.owner;
  wish.type = lock.l_type;
  wish.start = lock.l_start;
  wish.length = lock.l_len;
  return wish;
}

Result<std::string> Filesystem::path_of(const FileHandle& handle) const {
  const std::shared_lock lock(handle.job->overlay.mutex());
  return nodes_.path(handle.node);
}

// What the job has made under the lock that `wish` lets go of.
std::vector<std::string> Filesystem::built_under(const FileHandle& handle, const LockWish& wish) {
  if (wish.type != F_UNLCK || !handle.job->has_built()) return {};
  const auto named = named_locks_.of(handle);
  if (!named && !handle.is_lock_file) return {};
  if (!locks_.gives_up_exclusive(named ? named->id : lock_file_id(handle), wish)) return {};
  const Result<std::string> path = path_of(handle);
  return path ? publishing_.take_built(*handle.job, *path) : std::vector<std::string>();
}

// The caller's job may have written into an entry before it had the lock that the entry is built under, and another
// job may have published the entry meanwhile. Copies of the base's files would hide the rest of it.
void Filesystem::before_grant(const FileHandle& handle, std::function<void()> answer) {
  const Result<std::string> path = path_of(handle);
  const std::string entry = path ? entries_.entry_built_under(*path) : "";
  if (entry.empty()) return answer();
  Job& job = *handle.job;
  {
    const std::shared_lock lock(job.overlay.mutex());
    if (!job.overlay.has_own_folder(entry)) return answer();
  }
  publishing_.show_published(job, entry, std::move(answer));
}

// Its locks are about to go without an unlock: closed, or its process is dead. What it has made under them
// must not count as the next holder's.
void Filesystem::forget_built(const FileHandle& handle, bool is_record, std::uint64_t owner) {
  LockWish unlock;
  unlock.is_record = is_record;
  unlock.owner = owner;
  (void)built_under(handle, unlock);
}

// A process that locks a common file keeps others waiting, so that counts as a change.
bool Filesystem::may_share_lock(const Request& request, const FileHandle& handle, LockUse use) {
  if (use == LockUse::kLock && !note_change(request, encode({handle.node, handle.slot}))) return false;
  return handle.job->may_publish() && (use == LockUse::kLock || trust_.may_publish(request.caller));
}

// The base's file that takes the locks of this one (NamedLocks), or null if the job's processes lock the
// file among themselves: for other names, larger files, jobs that may not publish, and as long as a process
// holds a lock that was taken on the job's file.
NamedLocks::Lock Filesystem::named_lock_of(const Request& request, FileHandle& handle, LockUse use) {
  if (handle.is_lock_file) return nullptr;
  auto known = named_locks_.of(handle);
  if (use == LockUse::kUnlock) return known;
  Overlay& overlay = handle.job->overlay;
  const auto path = path_of(handle);
  if (!known && (!path || !overlay.may_become_lock(*path))) return nullptr;
  if (!known && locks_.is_wanted({0, handle.node})) return nullptr;
  if (!may_share_lock(request, handle, use)) return handle.uses_named_lock ? known : nullptr;
  if (known) known = named_locks_.use(handle);
  if (known || !path) return known;
  auto object = [&] {
    const std::shared_lock lock(overlay.mutex());
    return overlay.open_named_lock(*path, /*makes=*/use == LockUse::kLock);
  }();
  if (!object) {
    spdlog::debug("'{}' is locked among the processes of job '{}' alone: {}", *path, handle.job->id,
                  std::strerror(object.error().code()));
    return nullptr;
  }
  if (const auto st = sys::stat_fd(object->get())) note_use(object->get(), *st, O_RDONLY);
  auto added = named_locks_.add(handle, *path, *std::move(object));
  return added ? *std::move(added) : nullptr;
}

// The handle stays: its descriptor is in use until the request is answered.
void Filesystem::set_lock(const Request& request, FileHandle& handle, const LockWish& wish,
                          StatusCompletion completion) {
  std::unique_ptr<LockCall> call =
      std::make_unique<PendingLock>(locks_, std::move(completion));
  const auto use = wish.type == F_UNLCK ? LockUse::kUnlock : LockUse::kLock;
  const auto named = named_lock_of(request, handle, use);
  if (wish.type != F_UNLCK && (named || handle.is_lock_file)) {
    call = std::make_unique<GrantedCall>(std::move(call), [this, &handle](auto answer) {
      before_grant(handle, std::move(answer));
    });
  }
  const auto set = [this, &handle, wish, named](std::unique_ptr<LockCall> pending) {
    if (named) return named_locks_.lock(handle, named, wish, std::move(pending));
    locks_.lock(lock_file_id(handle), opener_of(handle), wish, std::move(pending));
  };
  std::vector<std::string> built = built_under(handle, wish);
  if (built.empty()) return set(std::move(call));
  publishing_.built(*handle.job, std::move(built), {},
                [set, pending = std::make_shared<std::unique_ptr<LockCall>>(std::move(call))] {
                  set(std::move(*pending));
                });
}

// Compile caches write a file once, by the handle that has made it, and then read it. A process that opens an
// existing file for both is more like a database.
bool Filesystem::tells_of_close(NodeIndex node, int flags) const {
  if ((flags & O_ACCMODE) == O_RDWR && (flags & O_CREAT) == 0) return true;
  return nodes_.takes_locks(node) || nodes_.name(node).ends_with(".lock");
}

// A baton that a process locks excludes by that, and not by being there: it stays when its maker dies.
void Filesystem::note_locked(const FileHandle& handle) {
  if (nodes_.takes_locks(handle.node)) return;
  nodes_.set_takes_locks(handle.node);
  const auto path = path_of(handle);
  if (path && batons_.is_baton(*path)) batons_.forget(*handle.job, *path);
}

void Filesystem::flock(const Request& request, std::uint64_t fh, int operation,
                       StatusCompletion completion) {
  FileHandle* const handle = handles_.file(fh);
  if (handle == nullptr) return completion.complete(Errno(EOPNOTSUPP));
  LockWish wish = lock_wish(request, *handle, fh);
  wish.type = lock_type(operation);
  if (wish.type != F_UNLCK) note_locked(*handle);
  wish.waits = (operation & LOCK_NB) == 0;
  set_lock(request, *handle, wish, std::move(completion));
}

void Filesystem::setlk(const Request& request, const LockTarget& target, const struct flock& lock,
                       bool waits, StatusCompletion completion) {
  FileHandle* const handle = handles_.file(target.fh);
  if (handle == nullptr) return completion.complete(Errno(EOPNOTSUPP));
  if (lock.l_type != F_UNLCK) note_locked(*handle);
  LockWish wish = record_wish(request, *handle, target, lock);
  wish.waits = waits;
  wish.thread = request.caller.tid;
  // Its own handle too: a duplicate may stay open, in a child as well.
  wish.others_close_unseen = nodes_.silent_handles(handle->node) > 0;
  set_lock(request, *handle, wish, std::move(completion));
}

Result<struct flock> Filesystem::getlk(const Request& request, const LockTarget& target,
                                       const struct flock& lock) {
  FileHandle* const handle = handles_.file(target.fh);
  if (handle == nullptr) return Errno(EOPNOTSUPP);
  const LockWish wish = record_wish(request, *handle, target, lock);
  struct flock found {};
  const auto named = named_lock_of(request, *handle, LockUse::kFind);
  const int error = named ? named_locks_.find(named, wish, found)
                          : locks_.find(lock_file_id(*handle), opener_of(*handle), wish, found);
  if (error != 0) return Errno(error);
  return found;
}

// A descriptor is closed, perhaps not the last one of its handle. Nothing of ours is buffered but of
// files of class `shared`.
Status Filesystem::flush(const Request& request, const LockTarget& target) {
  FileHandle* const handle = handles_.file(target.fh);
  if (handle == nullptr) return {};
  // Before its locks go, and somebody else looks.
  const Status committed =
      handle->shared ? shared_files_.commit(*handle, request.caller.tid) : Status();
  forget_built(*handle, /*is_record=*/true, target.owner);
  locks_.closed(lock_file_id(*handle), target.fh, target.owner);
  named_locks_.closed(*handle, target.fh, target.owner);
  return committed;
}

void Filesystem::release_locks(FileHandle& handle, std::uint64_t fh) {
  ++releases_;
  forget_built(handle, /*is_record=*/false, fh);
  locks_.released(lock_file_id(handle), fh);
  named_locks_.released(handle, fh);
  --releases_;
}

// Its entry is not published by that: whoever was at work has not come to the end.
void Filesystem::reap(const Baton& baton) {
  Job& job = *baton.job;
  const std::string folder(parent_path(baton.path));
  const std::string name(base_name(baton.path));
  {
    const std::unique_lock lock(job.overlay.mutex());
    const auto found = job.overlay.find(baton.path);
    const bool is_same = found && found->in_upper && found->st.st_dev == baton.device &&
                         found->st.st_ino == baton.inode;
    if (!is_same) return;  // removed, or taken by another since
    const NodeIndex parent = nodes_.find_path(job.view_root, folder);
    NodeTable::Removed kept;
    if (parent != 0) kept = keep_object(job.overlay, parent, name, baton.path);
    if (!job.overlay.remove_file(baton.path)) return;
    if (parent != 0) nodes_.remove(parent, name, std::move(kept));
  }
  counters_.batons_reaped.fetch_add(1, std::memory_order_relaxed);
  spdlog::info("removed '{}' of job '{}': the process that made it is dead", baton.path, job.id);
  invalidation_.name_changed(job, folder, name);
}

}  // namespace cacheshim
