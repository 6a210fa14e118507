// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/statvfs.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/names.h"
#include "fuse/control/control.h"
#include "fuse/jobs/caller.h"
#include "fuse/jobs/idle_jobs.h"
#include "fuse/jobs/job_table.h"
#include "fuse/jobs/publish_trust.h"
#include "fuse/nodes/handle.h"
#include "fuse/nodes/io_modes.h"
#include "fuse/nodes/node_table.h"
#include "fuse/nodes/open_files.h"
#include "fuse/services/eviction/store_keeper.h"
#include "fuse/services/freshness/cache_timeouts.h"
#include "fuse/services/freshness/claim_news.h"
#include "fuse/services/freshness/invalidation.h"
#include "fuse/services/freshness/pending_unlinks.h"
#include "fuse/services/locks/job_batons.h"
#include "fuse/services/locks/lock_removals.h"
#include "fuse/services/locks/lock_table.h"
#include "fuse/services/locks/named_locks.h"
#include "fuse/services/publishing/publishing.h"
#include "fuse/services/shared_files/shared_files.h"
#include "fuse/services/single_flight/single_flight.h"
#include "fuse/vfs/request.h"
#include "store/base/store.h"
#include "store/sys/task_queue.h"

namespace cacheshim {

struct FilesystemOptions {
  std::string shown_path;  // where users see the mount
  std::string layers_dir;  // for messages
  std::string store_dir;
  std::string run_dir;
  std::string routes;  // for processes that do not see run_dir
  PublishPolicy publish;
  WatchMode watch;
  std::chrono::seconds job_idle;
  std::chrono::seconds layer_keep;
  std::chrono::seconds flight_timeout;  // 0: no single flight
  OwnerRule owners;
  std::string cycle;  // the mount's, for the record of its closing
  EvictionLimits gc;
  std::chrono::seconds gc_interval;
  const DirectFolders* direct = nullptr;  // outlives the file system
  std::optional<PublishAllow> allow;
  bool verify_on_open;
};

// The mount: what each FUSE request means. One method a request; each computes its answer under the
// locks it needs and gives it after they are released. Called by many threads at once.
//
// Lock order: publisher's entry lock, Overlay::mutex() of one job, then a job's, the node table's,
// the arenas', IoModes' and the notifier's mutex, of which none is held while another of them is
// taken, but the arenas' within the node table's.
class Filesystem {
 public:
  // `store` and `profiles` must outlive it.
  Filesystem(const Store& store, const std::vector<Profile>& profiles, FilesystemOptions options);
  ~Filesystem();

  // Makes of the whole mount one view, that of a plain overlay: no folders of our own, no jobs, no
  // publishing. `lowers`, the topmost first, must stay open; read-only where the others are empty.
  // Call it first, or never.
  Status show_plain(const std::vector<int>& lowers, UniqueFd upper, UniqueFd work);

  // From then on notices can be sent, and jobs end by themselves.
  void start(int device);
  // The kernel has said which minor version of the protocol it speaks, and whether it can read and
  // write files by itself.
  void connected(const Protocol& agreed);
  // The mount is about to be taken away for good: that is recorded, then those who wait for a lock get
  // ENOLCK, those who wait for a job's end are told what is known, and from then on nobody can wait.
  // Returns when they have their answers, or do not fetch them.
  void close_waits();
  // The same, but taken back after that time where the mount is still there then, as reopen_waits() does.
  void close_waits_for(std::chrono::seconds time);
  // It stays after all. Does nothing once close_waits() has been called.
  void reopen_waits();
  LockTable::Waiting lock_waiting() { return locks_.waiting(); }
  bool is_closing() const { return is_closing_; }
  // Finishes what is under way, and tells the kernel of it. To be called while requests are answered
  // still: they may wait for it, and the kernel for their answers. What they begin from then on is not done.
  void finish_tasks();
  // When there are no more requests. Active jobs stay on record for the next daemon.
  void stop();

  // ---- Requests. What may take long or must wait completes its request later.
  void lookup(const Request& request, NodeId parent, const char* name, EntryCompletion completion);
  void forget(NodeId ino, std::uint64_t count);
  void drop_entry(NodeId ino);
  void getattr(const Request& request, NodeId ino, std::optional<std::uint64_t> fh,
               AttributesCompletion completion);
  // `to_set`: FATTR_ bits.
  Result<Attributes> setattr(const Request& request, NodeId ino, const struct stat& attr,
                             int to_set, std::optional<std::uint64_t> fh);
  Result<std::string> readlink(const Request& request, NodeId ino);
  Result<Entry> mknod(const Request& request, NodeId parent, const char* name, mode_t mode,
                      dev_t device);
  void mkdir(const Request& request, NodeId parent, const char* name, mode_t mode,
             EntryCompletion completion);
  void unlink(const Request& request, NodeId parent, const char* name, StatusCompletion completion);
  Status rmdir(NodeId parent, const char* name);
  void symlink(const Request& request, const char* target, NodeId parent, const char* name,
               EntryCompletion completion);
  void rename(const Request& request, NodeId parent, const char* name, NodeId new_parent,
              const char* new_name, unsigned flags, StatusCompletion completion);
  void link(const Request& request, NodeId ino, NodeId new_parent, const char* new_name,
            EntryCompletion completion);
  Result<CreatedFile> create(const Request& request, NodeId parent, const char* name, mode_t mode,
                             int flags);
  Result<CreatedFile> tmpfile(const Request& request, NodeId parent, mode_t mode, int flags);
  void open(const Request& request, NodeId ino, int flags, OpenCompletion completion);
  Result<ReadSource> read(const OpenFlags& open);
  Result<std::size_t> write(const Request& request, const OpenFlags& open, std::string_view data,
                            off_t offset);
  Status flush(const Request& request, const LockTarget& target);
  Result<struct flock> getlk(const Request& request, const LockTarget& target,
                             const struct flock& lock);
  void setlk(const Request& request, const LockTarget& target, const struct flock& lock, bool waits,
             StatusCompletion completion);
  void flock(const Request& request, std::uint64_t fh, int operation, StatusCompletion completion);
  void release(std::uint64_t fh);
  Status fsync(std::uint64_t fh, bool is_data_alone);
  Status fallocate(std::uint64_t fh, int mode, off_t offset, off_t length);
  Result<off_t> lseek(std::uint64_t fh, off_t offset, int whence);
  Result<std::size_t> copy_file_range(std::uint64_t fh_in, off_t in, std::uint64_t fh_out,
                                      off_t out, std::size_t length);
  OpenedFile opendir(NodeId ino);
  // Gives the entries after `offset` to `take`, each with its own offset, until `take` returns false.
  Status readdir(const Request& request, NodeId ino, std::uint64_t fh, off_t offset,
                 const EntrySink& take);
  void releasedir(std::uint64_t fh);
  Status fsyncdir(NodeId ino);
  Result<struct statvfs> statfs(NodeId ino);
  Status setxattr(const Request& request, NodeId ino, const char* name, std::string_view value,
                  int flags);
  Result<std::string> getxattr(NodeId ino, const char* name);
  Result<std::string> listxattr(NodeId ino);
  Status removexattr(NodeId ino, const char* name);

  // ---- fs_trust.cc: before a request that changes what `ino` is part of; before one that opens it
  Status note_change(const Request& request, NodeId ino);
  Status note_open(const Request& request, NodeId ino, int flags);
  // Whether the caller must not be served objects of this object's view, because it is another user's view.
  static bool is_kept_from(const Request& request, const NodeInfo& info);

  // ---- For control/
  JobTable& jobs() { return jobs_; }
  TaskQueue& tasks() { return control_; }
  Publishing& publishing() { return publishing_; }
  const Publisher& publisher() const { return publishing_.publisher(); }
  StoreKeeper& keeper() { return keeper_; }
  const FilesystemOptions& options() const { return options_; }
  const PublishTrust& trust() const { return trust_; }
  const Counters& counters() const { return counters_; }
  NodeTable& nodes() { return nodes_; }
  const Store& store() const { return store_; }
  const EntryMap& entries() const { return entries_; }
  const Flights* flights() const { return single_flight_.flights(); }  // null without single flight
  std::uint64_t direct_opens() const;  // that processes served themselves, of all jobs
  std::time_t started() const { return started_; }
  WatchMode watch_mode() const { return timeouts_.watch_mode(); }
  bool is_base_local() const { return is_base_local_; }
  // Whether the kernel reads and writes files of layers by itself.
  bool passes_through() const { return io_modes_.is_enabled(); }
  bool is_asked_by_rings() const { return is_asked_by_rings_; }
  // Whether lock files exclude this mount's processes alone, for want of locks below.
  bool has_local_locks_only() { return locks_.is_local_only(); }

 private:
  // What the caller makes, and for whom, by the rule of owners.
  NewObject new_object(const Request& request, mode_t mode, dev_t device = 0) const;

  // ---- fs_own.cc: the mount's own folders
  Result<Entry> lookup_own(const Request& request, NodeRef parent, const NodeInfo& info,
                           const std::string& name);
  Result<Entry> lookup_root(const Request& request, const std::string& name);
  Result<Job*> find_open_job(const Caller& caller, const std::string& id, bool begin, bool make);
  Result<Entry> lookup_job(const Request& request, const std::string& name, bool make);
  void make_in_root(const Request& request, const std::string& name, mode_t mode,
                    EntryCompletion completion);
  struct stat own_attr(NodeIndex node, const NodeInfo& info) const;
  Entry own_entry(NodeIndex parent, const std::string& name, NodeKind kind, double timeout,
                  Job* job = nullptr);
  std::string link_target(const Request& request, NodeIndex node, const NodeInfo& info);
  std::vector<ListedEntry> list_own(const Request& request, const NodeInfo& info);
  std::string text_of(NodeIndex node, const NodeInfo& info);
  void complete_job(EntryCompletion completion, const Result<Entry>& entry);
  JobClaim claim_of(const Caller& caller);
  Job& job_of(const Request& request);
  Job* find_job_of(const Request& request);
  std::string view_name(const Job& job, ViewSlot slot) const;
  bool is_profile_name(const std::string& name) const;

  // ---- fs_attr.cc
  Result<Attributes> object_attr(NodeRef ref, const NodeInfo& given);
  Result<Attributes> attr_by_path(NodeRef ref);  // with Overlay::mutex() held
  Result<struct stat> show(NodeRef ref, const NodeInfo& info, const struct stat& st,
                           bool in_upper) const;
  Result<std::string> xattr_of(NodeIndex node, const char* name);
  Result<UniqueFd> open_for_change(NodeIndex node, off_t keep_bytes);
  // Before Overlay::mutex() is taken for a change that copies the node up: Overlay::prepare_copy_up().
  Result<PreparedCopies> prepare_change(NodeIndex node, off_t keep_bytes = kWholeFile,
                                        bool whole_tree = false);
  enum class SetIds { kStay, kDroppedByWrite, kDroppedByChown };
  Result<SetIds> set_ids_after(const Request& request, NodeRef ref, const NodeInfo& info,
                               int to_set);
  Status drop_privileges(const Request& request, NodeRef ref, int fd);
  static Status change_lock(int fd, off_t most_bytes, const struct stat& attr, int to_set);
  Status change_attr(const Request& request, NodeRef ref, const NodeInfo& info,
                     const struct stat& attr, int to_set, FileHandle* handle);
  bool keeps_xattr(const char* name) const;
  Status change_xattr(NodeId ino, const char* name, const std::function<Status(int fd)>& change);

  // Changes names with Overlay::mutex() held shared if that does, else exclusively. Within one view the
  // kernel lets only one change of a folder go on at a time; several share the job's layer without.
  template <class Change>
  std::invoke_result_t<Change, Hold> change_names(Job& job, Change&& change);
  // Looks something up by a node's path, which a change may make wrong as long as the mutex is held
  // shared only: what is not there is looked for again while no change goes on.
  template <class Find>
  static std::invoke_result_t<Find> look_by_path(const Overlay& overlay, Find&& find);

  // ---- fs_names.cc
  // An object's parent folder in a view, or the error for anything else.
  Result<NodeInfo> view_folder(NodeRef parent);
  Result<std::string> child_path(NodeRef parent, const std::string& name) const;
  Result<Entry> find_entry(NodeRef parent, const NodeInfo& info, const std::string& name);
  Result<Entry> made_entry(NodeRef parent, const NodeInfo& info, const std::string& name);
  Result<Entry> make_entry(NodeId parent, const std::string& name,
                           const std::function<Status(Overlay&, const std::string&)>& make);
  Result<Entry> entry_of(NodeRef parent, const NodeInfo& info, const std::string& name, Found found,
                         const DirectoryLookup& look);
  // Returns the path it had.
  using RemoveName = std::function<Status(Job& job, const std::string& path, Hold hold)>;
  Result<std::string> remove_name(NodeId parent, const std::string& name, const RemoveName& remove);
  Result<std::string> rename_object(NodeRef from, const std::string& name, NodeRef to,
                                    const std::string& new_name, unsigned flags);
  Status link_to(NodeIndex node, Job& job, const std::string& new_path);
  Result<Entry> add_lock_name(NodeIndex source, NodeRef parent, const NodeInfo& folder,
                              const std::string& path);

  // ---- fs_nameless.cc: objects that have lost their name, and common objects of the base
  NodeTable::Removed keep_object(const Overlay& overlay, NodeIndex parent, const std::string& name,
                                 const std::string& path) const;
  // The same for a request that removes the name.
  NodeTable::Removed prepare_removal(const Overlay& overlay, NodeRef parent,
                                     const std::string& name, const std::string& path);
  // An O_PATH descriptor of an object, wherever it is. Requires: Overlay::mutex().
  Result<UniqueFd> open_object(NodeIndex node);
  Status settle_name(NodeIndex node);
  Status own_removed(NodeIndex node);
  Result<std::unique_ptr<FileHandle>> open_removed(NodeRef ref, const NodeInfo& info, int flags);
  Result<Attributes> attr_of_open(NodeRef ref) const;
  Common common_kind(const std::string& path) const;
  static off_t most_bytes_of(Common kind);
  bool is_named(NodeIndex node, const NodeInfo& info, const struct stat& st) const;
  static bool is_outdated(const NodeInfo& info);
  Result<std::shared_ptr<const UniqueFd>> common_object(NodeIndex node, const NodeInfo& info);
  Result<Attributes> attr_of_common(NodeRef ref, const NodeInfo& info);
  Result<std::unique_ptr<FileHandle>> open_common(NodeRef ref, const NodeInfo& info, int flags);
  using Created = std::pair<Entry, std::unique_ptr<FileHandle>>;
  Result<Created> create_common(NodeRef parent, const NodeInfo& info, const std::string& path,
                                int flags);

  // ---- fs_files.cc
  Result<std::unique_ptr<FileHandle>> open_file(NodeRef ref, Job& job, int flags);
  Result<std::unique_ptr<FileHandle>> open_writable(NodeRef ref, Job& job, int flags);
  // With Overlay::mutex() held, as open_removed().
  Result<std::unique_ptr<FileHandle>> open_readable(NodeRef ref, Job& job, int flags);
  void note_use(int fd, const struct stat& st, int flags) const;
  // With Overlay::mutex() held, so that the file is not published before it counts as written to.
  Result<std::unique_ptr<FileHandle>> make_handle(Opened opened, const struct stat& st, NodeRef ref,
                                                  Job* job, int flags);
  Status choose_io(FileHandle& handle, const struct stat& st, int flags);
  Result<Created> create_file(NodeRef parent, const std::string& name, const NewObject& wanted,
                              int flags);
  Result<Created> create_tmpfile(NodeRef parent, const NewObject& wanted, int flags);
  OpenedFile add_file(const Request& request, std::unique_ptr<FileHandle> handle);
  Result<OpenedFile> open_object_file(const Request& request, NodeRef ref, const NodeInfo& info,
                                      int flags);
  Status refresh(FileHandle& handle);
  Status refresh_for_reading(FileHandle& handle);
  // Runs `change` with the handle's current descriptor, as a writer of the file.
  Result<std::size_t> change_data(FileHandle& handle,
                                  const std::function<Result<std::size_t>(int fd)>& change);
  void end_writing(FileHandle& handle);
  Result<OpenedFile> open_own(NodeRef ref, const NodeInfo& info, int flags);

  // ---- fs_shared.cc
  std::optional<Result<Attributes>> attr_of_writer(const Request& request, NodeRef ref,
                                                   const NodeInfo& info);
  // As the descriptor of a handle shows `st`.
  Result<Attributes> handle_attr(NodeRef ref, const NodeInfo& info, struct stat st, bool in_upper);
  std::optional<Result<Attributes>> try_change_shared(NodeRef ref, const NodeInfo& info,
                                                      const struct stat& attr, int to_set,
                                                      FileHandle* handle);

  // ---- fs_locks.cc
  LockFileId lock_file_id(const FileHandle& handle) const;
  LockTable::Opener opener_of(const FileHandle& handle) const;
  void lock_by_inode(NodeIndex node, const LockTable::Opener& open);
  Status settle_lock_name(NodeIndex node, Job& job, const std::string& path, UniqueFd new_lock);
  // Whether the kernel is to report each close (FLUSH) of a handle that is about to be opened.
  bool tells_of_close(NodeIndex node, int flags) const;
  LockWish lock_wish(const Request& request, const FileHandle& handle, std::uint64_t fh) const;
  LockWish record_wish(const Request& request, const FileHandle& handle, const LockTarget& target,
                       const struct flock& lock) const;
  void set_lock(const Request& request, FileHandle& handle, const LockWish& wish,
                StatusCompletion completion);
  enum class LockUse { kLock, kUnlock, kFind };
  bool may_share_lock(const Request& request, const FileHandle& handle, LockUse use);
  NamedLocks::Lock named_lock_of(const Request& request, FileHandle& handle, LockUse use);
  Result<std::string> path_of(const FileHandle& handle) const;
  void note_locked(const FileHandle& handle);
  void before_grant(const FileHandle& handle, std::function<void()> answer);
  std::vector<std::string> built_under(const FileHandle& handle, const LockWish& wish);
  void forget_built(const FileHandle& handle, bool is_record, std::uint64_t owner);
  LockSystem lock_system();
  void release_locks(FileHandle& handle, std::uint64_t fh);
  void reap(const Baton& baton);

  // ---- fs_dirs.cc
  bool may_keep_listing(NodeIndex node, const NodeInfo& info);
  Status load(const Request& request, NodeRef ref, DirHandle& dir);

  // ---- fs_flight.cc
  void note_step(NodeRef parent, const std::string& name);
  Result<Entry> join_flight(const Request& request, NodeRef parent, const NodeInfo& info,
                            const std::string& name, const Entry& missed);
  Result<Entry> placeholder_entry(NodeRef ref, mode_t mode) const;
  bool may_be_placeholder(NodeIndex node, const NodeInfo& info) const;
  // ESTALE makes the kernel look the name up again, and it takes what it gets then.
  template <class R>
  void wait_for_flight(const Request& request, NodeRef ref, const NodeInfo& info,
                       Completion<R> completion);

  std::vector<std::string> put_damaged_away(NodeRef ref);

  static constexpr unsigned kControlThreads = 2;
  static constexpr std::chrono::seconds kShortestIdleLook{1};
  static constexpr std::chrono::seconds kAnswerDeadline{1};

  void refuse_waits();

  const Store& store_;
  const FilesystemOptions options_;
  const EntryMap entries_;
  const std::time_t started_;
  Counters counters_;
  NodeTable nodes_;
  HandleTable handles_;
  OpenFiles open_files_;
  IoModes io_modes_;
  std::atomic<bool> is_asked_by_rings_{false};
  std::atomic<int> releases_{0};  // RELEASE requests whose locks are not gone yet
  LockTable locks_{counters_, lock_system()};
  LockFiles base_locks_{entries_};
  LockRemovals lock_removals_{locks_, base_locks_};
  NamedLocks named_locks_{locks_, base_locks_};
  std::mutex closing_mutex_;
  bool is_closed_for_good_ = false;
  std::atomic<bool> is_closing_{false};
  CallerJobs callers_;
  const LockAccess lock_access_;
  const PublishTrust trust_;
  const NodeIndex jobs_dir_;
  JobTable jobs_;
  Invalidation invalidation_{nodes_, jobs_, options_.direct};
  CacheTimeouts timeouts_{invalidation_, nodes_, io_modes_};
  ClaimNews claim_news_{nodes_, invalidation_};
  PendingUnlinks pending_unlinks_{[this](auto directory, const std::string& name) {
    invalidation_.notifier().tell_name_and_wait(directory, name);
  }};
  // Several queues: what answers a request never queues behind what waits for the notifier.
  Publishing publishing_;
  SingleFlight single_flight_{entries_, publishing_.publisher(), trust_, nodes_, counters_};
  SharedFiles shared_files_{store_, nodes_, base_locks_};
  JobBatons batons_{entries_, nodes_, jobs_};
  StoreKeeper keeper_;
  TaskQueue control_{kControlThreads};
  std::vector<int> lowers_;  // the base: one directory, or those of a plain overlay
  bool is_base_local_;
  std::unique_ptr<IdleJobs> idle_jobs_;
  std::unique_ptr<Ticker> ticker_;
  int device_ = -1;  // the session's
};

template <class Change>
std::invoke_result_t<Change, Hold> Filesystem::change_names(Job& job, Change&& change) {
  if (!job.shares_uids()) {
    const std::shared_lock lock(job.overlay.mutex());
    auto changed = job.overlay.has_layer() ? change(Hold::kShared) : Errno(kNeedsExclusive);
    if (!changed.failed_with(kNeedsExclusive)) return changed;
  }
  const std::unique_lock lock(job.overlay.mutex());
  CACHESHIM_CHECK(job.ensure_layer(store_.layers()));
  return change(Hold::kExclusive);
}

template <class Find>
std::invoke_result_t<Find> Filesystem::look_by_path(const Overlay& overlay, Find&& find) {
  {
    const std::shared_lock lock(overlay.mutex());
    auto found = find();
    if (!found.failed_with(ENOENT) && !found.failed_with(ESTALE)) return found;
  }
  const std::unique_lock lock(overlay.mutex());
  return find();
}

template <class R>
void Filesystem::wait_for_flight(const Request& request, NodeRef ref, const NodeInfo& info,
                                 Completion<R> completion) {
  const auto pending = share(std::move(completion));
  const auto wait = std::make_shared<Flights::Wait>(
      single_flight_.seeker_of(request.caller, *info.job, ""), [pending] {
        pending->watch(nullptr);
        pending->complete(Errno(ESTALE));
      });
  pending->watch(wait.get());  // before anybody can answer
  single_flight_.flights()->wait(ref.node, wait);
}

}  // namespace cacheshim
