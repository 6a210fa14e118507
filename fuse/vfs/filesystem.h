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
#include "fuse/services/freshness/generations.h"
#include "fuse/services/freshness/notifier.h"
#include "fuse/services/freshness/pending_unlinks.h"
#include "fuse/services/locks/batons.h"
#include "fuse/services/locks/lock_table.h"
#include "fuse/services/locks/named_locks.h"
#include "fuse/services/publishing/rejection_watch.h"
#include "fuse/services/single_flight/flights.h"
#include "fuse/vfs/request.h"
#include "store/base/base_watch.h"
#include "store/base/evictor.h"
#include "store/base/open_verifier.h"
#include "store/base/store.h"
#include "store/base/verifier.h"
#include "store/overlay/layer_units.h"
#include "store/publish/publisher.h"
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

  // For control.cc.
  JobTable& jobs() { return jobs_; }
  TaskQueue& tasks() { return control_; }
  const FilesystemOptions& options() const { return options_; }
  const PublishTrust& trust() const { return trust_; }
  const std::vector<Profile>& profiles() const { return entries_.profiles(); }
  const Counters& counters() const { return counters_; }
  std::uint64_t direct_opens() const;  // that processes served themselves, of all jobs
  std::time_t started() const { return started_; }
  NodeTable& nodes() { return nodes_; }
  WatchMode watch_mode() const { return watch_->mode(); }
  bool is_base_local() const { return is_base_local_; }
  const Flights* flights() const { return flights_.get(); }  // null without single flight
  // Whether the kernel reads and writes files of layers by itself.
  bool passes_through() const { return io_modes_.is_enabled(); }
  bool is_asked_by_rings() const { return is_asked_by_rings_; }
  // Whether lock files exclude this mount's processes alone, for want of locks below.
  bool has_local_locks_only() { return locks_.is_local_only(); }
  // These take long; call from a task.
  PublishReport publish_job(Job& job, const Publisher::Progress& progress);
  PublishReport end_job(Job& job, Outcome outcome, const Publisher::Progress& progress);
  std::uint64_t discard_job(Job& job);
  // What publish_job() and discard_job() would do.
  std::vector<UnitPlan> plan_publishing(Job& job, const Publisher::Progress& progress);
  LayerContent layer_of(const Job& job) const { return list_layer(job.overlay, entries_); }
  // Errors: EWOULDBLOCK while another daemon or request is at it.
  Result<EvictionReport> collect_garbage(bool dry_run);
  Result<VerifyReport> verify(bool repair, const VerifyProgress& progress);
  const Store& store() const { return store_; }
  const EntryMap& entries() const { return entries_; }
  const Publisher& publisher() const { return publisher_; }

 private:
  static Caller caller_of(const Request& request);
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

  // ---- fs_freshness.cc: how long the kernel may keep an answer, and what it is told of
  // A look into a folder, and what was known of changes in it when it began.
  struct Look {
    const Job* job;
    std::string folder;
    std::uint64_t generation;
    bool watched;
    bool claimed;
  };
  // To be called before the base is asked, with the overlay's mutex held.
  Look begin_look(const Job& job, std::string folder);
  // How long what was found, or that nothing was, may be kept, in seconds.
  double keep_name(const Look& look, const Found* found) const;
  double keep_attr(const Look& look, const Found& found, NodeRef ref);
  bool may_be_written_unseen(const Look& look, const Found& found, NodeRef ref);
  void base_changed(const std::vector<BaseChange>& changes);
  std::vector<Notifier::Notice> notices_of(const std::vector<BaseChange>& changes);
  void tell_other_views(const Job& job, NodeIndex node, ViewSlot slot);
  // Gives an answer by which a caller has entered a job's view, once the kernel knows whose it is.
  // `asked`: the node whose attributes are in the answer, where it is not the view's root; or 0.
  void answer_entered(Job& job, NodeIndex asked, std::function<void()> answer);
  void tell_of_claim(const Job& job, NodeIndex asked) const;
  void add_notices(const BaseChange& change, const Job& job,
                   std::vector<Notifier::Notice>& notices) const;
  void add_notices_of_all(const Job& job, std::vector<Notifier::Notice>& notices) const;
  std::vector<Notifier::Notice> notices_of(const PublishReport& report, const Job* publisher);
  std::vector<Notifier::Notice> notices_of_uncovered(const PublishReport& report, const Job& job);

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
                         const Look& look);
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
  // Null for what is not staged: locks, and what is only read.
  std::unique_ptr<SharedFile> shared_file_of(const std::string& path, Common kind, int flags,
                                             bool is_new) const;
  Result<std::size_t> change_shared(FileHandle& handle,
                                    const std::function<Result<std::size_t>(int fd)>& change,
                                    off_t keep_bytes = kWholeFile);
  std::string shared_path(const FileHandle& handle);
  // fstat(2) comes without the handle: whose it is tells the process.
  void note_shared(const FileHandle& handle, pid_t opener);
  void forget_shared(const FileHandle& handle);
  std::optional<Result<Attributes>> attr_of_writer(const Request& request, NodeRef ref,
                                                   const NodeInfo& info);
  // `closing`: the thread that closes it.
  Status commit_shared(FileHandle& handle, pid_t closing);
  void end_shared(FileHandle& handle);
  // As the descriptor of a handle shows `st`. Excludes: shared_mutex_, since it takes Overlay::mutex().
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
  std::vector<std::string> take_built(Job& job, std::string_view lock_file);
  void forget_built(const FileHandle& handle, bool is_record, std::uint64_t owner);
  LockSystem lock_system();
  void release_locks(FileHandle& handle, std::uint64_t fh);
  // Whether `process` has the lock file at `path` locked for itself. With Overlay::mutex() held.
  bool holds_lock(const Job& job, const std::string& path, pid_t process);
  // Unlinks a lock file for `process`; while others have it locked or wait for it, only for this job.
  Status remove_lock(Job& job, const std::string& path, pid_t process);
  // If what has just been made exclusively is one of a profile's batons.
  void note_baton(const Request& request, const FileHandle& handle);
  void reap(const Baton& baton);
  void watch_left_batons();
  void forget_removal(Job& job, const struct stat& st);
  bool finish_removal(const LockFileId& id);

  // ---- fs_dirs.cc
  bool may_keep_listing(NodeIndex node, const NodeInfo& info);
  Status load(const Request& request, NodeRef ref, DirHandle& dir);

  bool may_publish(const Request& request) const;

  // ---- fs_flight.cc
  bool is_worth_waiting_for(const Job& job, const std::string& path) const;
  Flights::Seeker seeker_of(const Request& request, Job& job, std::string path) const;
  void note_open_for_flights(const Request& request, Job& job, NodeIndex node);
  Flights::EntryState inspect_flight(const Job& job, const std::string& path) const;
  // Notifies the waiters for `path` of a change that was made to it. `completed` is the entry that this change
  // completes and that will not be published now, or "".
  void note_arrival(const Job& job, const std::string& path, const std::string& completed);
  Result<Entry> join_flight(const Request& request, NodeRef parent, const NodeInfo& info,
                            const std::string& name, const Entry& missed);
  Result<Entry> placeholder_entry(NodeRef ref, mode_t mode) const;
  bool may_be_placeholder(NodeIndex node, const NodeInfo& info) const;
  // ESTALE makes the kernel look the name up again, and it takes what it gets then.
  template <class R>
  void wait_for_flight(const Request& request, NodeRef ref, const NodeInfo& info,
                       Completion<R> completion);

  // ---- fs_publish.cc
  // Publishes what `path` has just completed, and then calls `answer`; `held` are the folders that the
  // request to be answered holds.
  void publish_completed(Job& job, const std::string& path, Arrival arrival,
                         std::vector<Notifier::FolderId> held, std::function<void()> answer);
  // What has just been made, or given its name, if its entry is built under a lock.
  void note_built(Job& job, const std::string& path);
  // Of single flight: something has been made, renamed or removed. With no lock held.
  void note_step(const Job& job, const std::string& path, bool is_removed = false);
  void note_step(NodeRef parent, const std::string& name);
  // Publishes what was built under a lock that is about to be let go, and then calls `answer`.
  void publish_built(Job& job, std::vector<std::string> paths, std::vector<Notifier::FolderId> held,
                     std::function<void()> answer);
  void show_published(Job& job, const std::string& entry, std::function<void()> answer);
  PublishReport publish_entry(Job& job, const std::string& entry);
  void retry_postponed(Job& job);
  void tell_of(const PublishReport& report, const Job& publisher,
               std::vector<Notifier::FolderId> held, std::function<void()> answer);
  std::size_t drop_layer(Job& job, Outcome outcome);
  void notify_and_wait(std::vector<Notifier::Notice> notices);

  // ---- fs_gc.cc
  void tend_store();
  void tend_store_if_due();
  void tell_of_gone(const std::vector<std::string>& paths);
  void tell_of_gone_and_wait(const std::vector<std::string>& paths);
  // Answers a request that holds `folder`, once the kernel knows that these paths are gone.
  void answer_gone(const std::vector<std::string>& paths, NodeId folder,
                   std::function<void()> answer);
  std::vector<std::string> put_damaged_away(NodeRef ref);

  static constexpr unsigned kPublishingThreads = 4;
  static constexpr unsigned kControlThreads = 2;
  static constexpr unsigned kClaimThreads = 1;  // so that who comes next waits for the first
  static constexpr std::chrono::seconds kShortestIdleLook{1};
  static constexpr std::chrono::seconds kAnswerDeadline{1};

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
  // Lock files that jobs have unlinked while others wanted them: to be removed once nobody does.
  struct Removal {
    std::string path;
    std::set<Job*> jobs;
  };
  std::mutex removals_mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Removal> removals_;
  LockFiles base_locks_{entries_};
  NamedLocks named_locks_{locks_, base_locks_};
  void refuse_waits();
  std::mutex closing_mutex_;
  bool is_closed_for_good_ = false;
  std::atomic<bool> is_closing_{false};
  struct SharedOpening {
    const FileHandle* handle;
    pid_t process;
  };
  std::mutex shared_mutex_;  // of the openings of files of class `shared`, by node
  std::map<NodeIndex, std::vector<SharedOpening>> shared_openings_;
  std::atomic<std::size_t> shared_count_{0};
  CallerJobs callers_;
  const LockAccess lock_access_;
  const PublishTrust trust_;
  const NodeIndex jobs_dir_;
  JobTable jobs_;
  Publisher publisher_;
  const RejectionWatch rejections_;
  // Several queues: what answers a request never queues behind what waits for the notifier, nor a
  // first look behind publishing.
  TaskQueue publishing_;
  TaskQueue control_;
  TaskQueue claims_;
  Generations generations_;  // of the base
  std::vector<int> lowers_;  // the base: one folder, or those of a plain overlay
  bool is_base_local_;
  int device_ = -1;  // of the connection
  std::unique_ptr<Notifier> notifier_;
  PendingUnlinks pending_unlinks_{[this](auto directory, const std::string& name) {
    notifier_->tell_name_and_wait(directory, name);
  }};
  std::unique_ptr<BaseWatch> watch_;
  std::unique_ptr<IdleJobs> idle_jobs_;
  std::unique_ptr<Ticker> ticker_;
  std::unique_ptr<Flights> flights_;  // null without single flight
  std::unique_ptr<Batons> batons_;
  std::unique_ptr<OpenVerifier> verifier_;                // null without verify_on_open
  std::chrono::steady_clock::time_point store_tended_{};  // the ticker's
  std::atomic<bool> tending_{false};
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
  const auto wait = std::make_shared<Flights::Wait>(seeker_of(request, *info.job, ""), [pending] {
    pending->watch(nullptr);
    pending->complete(Errno(ESTALE));
  });
  pending->watch(wait.get());  // before anybody can answer
  flights_->wait(ref.node, wait);
}

}  // namespace cacheshim
