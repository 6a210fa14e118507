// SPDX-License-Identifier: Apache-2.0
#include "fuse/vfs/names.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "store/overlay/changes.h"
#include "store/overlay/common_names.h"
#include "store/overlay/copy_bound.h"
#include "store/sys/paths.h"
#include "store/sys/process.h"
#include "store/sys/sys.h"

namespace cacheshim {

void Names::lookup(const Request& request, NodeId parent_ino, const char* name,
                   EntryCompletion completion) {
  mount_.counters.lookups.fetch_add(1, std::memory_order_relaxed);
  const NodeRef parent = decode(parent_ino);
  const NodeInfo info = mount_.nodes.info(parent.node);
  if (info.kind == NodeKind::kJobsDir) {
    return own_tree_.complete_job(std::move(completion),
                                  own_tree_.lookup_job(request, name, false));
  }
  if (info.kind != NodeKind::kObject) {
    return completion.complete(own_tree_.lookup_own(request, parent, info, name));
  }
  if (info.removed) return completion.complete(Errno(ENOENT));
  info.job->use.touch();
  if (const Status may_add = check_nodes(*info.job, parent, name); !may_add) {
    return completion.complete(may_add.error());
  }
  const auto find = [&] {
    const ReaderLock lock(info.job->overlay.mutex());
    return answers_.find_entry(*info.job, parent, name);
  };
  Result<Entry> entry = find();
  std::vector<std::string> gone;
  if (mount_.keeper.verifies_on_open() && entry && entry->ino != 0)
    gone = objects_.trash_if_damaged(decode(entry->ino));
  if (!gone.empty()) {
    mount_.nodes.forget(decode(entry->ino).node, 1);
    entry = find();
  }
  if (entry && entry->ino == 0) {
    mount_.counters.misses.fetch_add(1, std::memory_order_relaxed);
    if (mount_.single_flight.flights() != nullptr)
      entry = flight_requests_.join_flight(request, parent, info, name, *entry);
  }
  if (gone.empty()) return completion.complete(entry);
  mount_.invalidation.removed_before_answer(
      gone, parent_ino,
      [pending = share(std::move(completion)), entry] { pending->complete(entry); });
}

// Call before a lookup, which may make a node. Errors: ENFILE if the view's user has reached the limit on nodes, and
// the kernel does not know the name yet.
Status Names::check_nodes(const Job& job, NodeRef parent, std::string_view name) {
  UserAccount& account = mount_.limits.account(job.views.owner().value_or(0));
  if (!account.is_near(Limit::kNodes)) return {};
  mount_.request_pruning();
  const bool is_full = account.used(Limit::kNodes) >= account.most(Limit::kNodes);
  if (!is_full || mount_.nodes.names().find(parent.node, name) != 0) return {};
  account.note_refusal(Limit::kNodes);
  return Errno(ENFILE);
}

void Names::forget(NodeId ino, std::uint64_t count) {
  mount_.io_modes.forget(ino);
  mount_.nodes.forget(decode(ino).node, count);
}

void Names::drop_entry(NodeId ino) { mount_.nodes.forget(decode(ino).node, 1); }

Result<Entry> Names::make_entry(NodeId parent_ino, const std::string& name,
                                const std::function<Status(Overlay&, const std::string&)>& make) {
  const NodeRef parent = decode(parent_ino);
  CACHESHIM_TRY(info, objects_.view_directory(parent));
  Job& job = *info.job;
  return objects_.change_names(job, [&](Hold hold) -> Result<Entry> {
    job.overlay.mutex().assert_held_shared();
    CACHESHIM_TRY(path, objects_.child_path(job, parent, name));
    if (hold == Hold::kShared && !changes::makes_shared(job.overlay, path))
      return Errno(kNeedsExclusive);
    CACHESHIM_CHECK(make(job.overlay, path));
    return answers_.made_entry(job, parent, name);
  });
}

void Names::mkdir(const Request& request, NodeId parent, const char* name, mode_t mode,
                  EntryCompletion completion) {
  const NodeKind kind = mount_.nodes.info(decode(parent).node).kind;
  if (kind == NodeKind::kRoot) {
    return own_tree_.make_in_root(request, name, mode & 07777, std::move(completion));
  }
  if (kind == NodeKind::kJobsDir) {
    return own_tree_.complete_job(std::move(completion), own_tree_.lookup_job(request, name, true));
  }
  const auto made = make_entry(parent, name, [&](Overlay& overlay, const std::string& path) {
    overlay.mutex().assert_held_shared();
    return changes::make_dir(overlay, path,
                             new_object(mount_.options.owners, request, mode & 07777));
  });
  if (made) flight_requests_.note_step(decode(parent), name);
  completion.complete(made);
}

Result<Entry> Names::mknod(const Request& request, NodeId parent, const char* name, mode_t mode,
                           dev_t device) {
  // With owner=squash, all objects of a view belong to its user, who must not own a device node. With owner=keep, the
  // kernel forwards a request for a device only if the caller has CAP_MKNOD in the initial user namespace, or if the
  // device is overlayfs's whiteout (character device 0:0), which make_node() refuses.
  const bool is_device = S_ISCHR(mode) || S_ISBLK(mode);
  if (is_device && !mount_.options.owners.keep) return Errno(EPERM);
  return make_entry(parent, name, [&](Overlay& overlay, const std::string& path) {
    overlay.mutex().assert_held_shared();
    return changes::make_node(overlay, path,
                              new_object(mount_.options.owners, request, mode, device));
  });
}

void Names::symlink(const Request& request, const char* target, NodeId parent, const char* name,
                    EntryCompletion completion) {
  std::string made;
  const auto entry = make_entry(parent, name, [&](Overlay& overlay, const std::string& path) {
    overlay.mutex().assert_held_shared();
    made = path;
    return changes::make_symlink(overlay, path, target,
                                 new_object(mount_.options.owners, request, 0777));
  });
  if (!entry) return completion.complete(entry);
  Job& job = *mount_.nodes.info(decode(parent).node).job;
  note_named(request, job, made,
             {{parent, entry->ino},
              [pending = share(std::move(completion)), entry] { pending->complete(entry); }});
}

void Names::note_named(const Request& request, Job& job, const std::string& path,
                       Publishing::Waiter waiter) {
  mount_.publishing.note_built(job, path);
  mount_.single_flight.note_step(job, path);
  mount_.publishing.rejections().note_changed(job, path, request.caller.tid);
  mount_.publishing.completed(job, path, Arrival::kNamed, std::move(waiter));
}

void Names::link(const Request& request, NodeId ino, NodeId parent_ino, const char* name,
                 EntryCompletion completion) {
  const NodeRef source = decode(ino);
  const NodeRef parent = decode(parent_ino);
  std::string linked;
  Job* job = nullptr;
  const Result<Entry> entry = [&]() -> Result<Entry> {
    const NodeInfo info = mount_.nodes.info(source.node);
    CACHESHIM_TRY(directory, objects_.view_directory(parent));
    if (info.job != directory.job) return Errno(EXDEV);
    job = directory.job;
    CACHESHIM_TRY(prepared, objects_.prepare_change(source.node));
    mount_.pending_unlinks.end(ino);
    const WriterLock lock(job->overlay.mutex());
    CACHESHIM_CHECK(job->ensure_layer(mount_.store.layers()));
    CACHESHIM_TRY(new_path, objects_.child_path(*job, parent, name));
    CACHESHIM_CHECK(link_to(source.node, *job, new_path));
    linked = new_path;
    const bool is_lock_name = job->overlay.locks().files.is_shared_name(new_path);
    if (is_lock_name || info.common != CommonKind::kNone) {
      return add_lock_name(*job, source.node, parent, new_path);
    }
    const DirectoryLookup lookup = mount_.timeouts.begin(*job, std::string(parent_path(new_path)));
    CACHESHIM_TRY(found, job->overlay.find(new_path));
    mount_.nodes.names().add_link(source.node, parent.node, name, found.st);
    return answers_.entry_of(*job, parent, name, std::move(found), lookup);
  }();
  if (!entry || job->overlay.locks().files.is_shared_name(linked))
    return completion.complete(entry);
  note_named(request, *job, linked,
             {{parent_ino, ino},
              [pending = share(std::move(completion)), entry] { pending->complete(entry); }});
}

// For a link from or to the name of a lock file. All names of a node are of one kind, so the new name gets a separate
// node with the same locks. Opens the object through `source`, because another process may already have removed a lock
// file's new name.
Result<Entry> Names::add_lock_name(Job& job, NodeIndex source, NodeRef parent,
                                   const std::string& path) {
  CACHESHIM_TRY(object, objects_.open_object(job, source));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  Found found{st, true};
  if (job.overlay.locks().files.is_shared_name(path)) {
    CACHESHIM_TRY(lock, sys::reopen(object.get(), O_PATH));
    found = {st, false, std::nullopt, std::move(lock)};
  }
  const DirectoryLookup lookup = mount_.timeouts.begin(job, std::string(parent_path(path)));
  CACHESHIM_TRY(entry, answers_.entry_of(job, parent, std::string(base_name(path)),
                                         std::move(found), lookup));
  for (const NodeIndex node : {source, decode(entry.ino).node}) {
    lock_requests_.lock_by_inode(node, [&object] { return sys::reopen(object.get(), O_PATH); });
  }
  return entry;
}

// A file without a name can get one if it belongs to the layer.
Status Names::link_to(NodeIndex node, Job& job, const std::string& new_path) {
  const NodeInfo info = mount_.nodes.info(node);
  if (info.removed) {
    if (info.object_fd() < 0 || !info.in_upper) return Errno(ENOENT);
    return changes::link_object(job.overlay, info.object_fd(), new_path);
  }
  CACHESHIM_TRY(path, mount_.nodes.path(node));
  return changes::link(job.overlay, path, new_path);
}

Result<std::string> Names::remove_name(const Request& request, NodeId parent_ino,
                                       const std::string& name, const RemoveName& remove) {
  const NodeRef parent = decode(parent_ino);
  CACHESHIM_TRY(info, objects_.view_directory(parent));
  Job& job = *info.job;
  return objects_.change_names(job, [&](Hold hold) -> Result<std::string> {
    job.overlay.mutex().assert_held_shared();
    CACHESHIM_TRY(path, objects_.child_path(job, parent, name));
    NodeNames::Removed kept = objects_.prepare_removal(request, parent, name, path, job.overlay);
    CACHESHIM_CHECK(remove(job, path, hold));
    mount_.nodes.names().remove(parent.node, name, std::move(kept));
    return path;
  });
}

void Names::unlink(const Request& request, NodeId parent, const char* name,
                   StatusCompletion completion) {
  const pid_t caller = request.caller.tid;
  // Whether the removal releases the lock under which the caller has built: the file is a baton, or a lock file whose
  // lock the caller holds. filelock 3.24 to 3.29 removes the file before it unlocks.
  bool is_released = false;
  const auto remove = [&](Job& job, const std::string& path, Hold hold) -> Status {
    job.overlay.mutex().assert_held_shared();
    if (is_shared_lock(job.overlay, path)) {
      is_released = mount_.lock_removals.is_held_by(job, path, process_of(caller));
      return mount_.lock_removals.remove(job, path, process_of(caller), hold);
    }
    CACHESHIM_CHECK(changes::remove_file(job.overlay, path, hold));
    is_released = mount_.batons.is_baton(path);
    if (is_released) mount_.batons.forget(job, path);
    return Status();
  };
  // Until the daemon replies, the kernel also holds the inode lock of the removed object. A queued invalidation of a
  // directory that had the same node id before would wait for this lock, so the object counts as held
  // (HeldDirectories).
  const NodeRef directory = decode(parent);
  const NodeId victim = encode({mount_.nodes.names().find(directory.node, name), directory.slot});
  const Result<std::string> removed = remove_name(request, parent, name, remove);
  if (!removed) return completion.complete(removed.error());
  Job& job = *mount_.nodes.info(directory.node).job;
  mount_.single_flight.note_step(job, *removed, /*is_removed=*/true);
  mount_.publishing.rejections().note_changed(job, *removed, caller);
  const auto answer = [pending = share(std::move(completion))] { pending->complete({}); };
  std::vector<std::string> built;
  if (is_released) built = mount_.publishing.take_built(job, *removed);
  if (!built.empty())
    return mount_.publishing.built(job, std::move(built), {parent, victim}, answer);
  mount_.publishing.completed(job, *removed, Arrival::kUnlocked, {{parent, victim}, answer});
}

// Replies only when no entry that contains the directory is being published any more. Some programs, such as Triton,
// write a file in a temporary directory, rename the file into its entry, and then remove the directory. The reply to
// the rename does not wait for the publishing, so the reply to the removal does.
void Names::rmdir(const Request& request, NodeId parent, const char* name,
                  StatusCompletion completion) {
  const auto remove = [](Job& job, const std::string& path, Hold hold) {
    job.overlay.mutex().assert_held_shared();
    return changes::remove_dir(job.overlay, path, hold);
  };
  const NodeRef directory = decode(parent);
  const NodeId victim = encode({mount_.nodes.names().find(directory.node, name), directory.slot});
  const Result<std::string> removed = remove_name(request, parent, name, remove);
  if (!removed) return completion.complete(removed.error());
  Job& job = *mount_.nodes.info(directory.node).job;
  mount_.single_flight.note_step(job, *removed, /*is_removed=*/true);
  mount_.publishing.await(
      job, *removed,
      {{parent, victim}, [pending = share(std::move(completion))] { pending->complete({}); }});
}

// The kernel lets only one rename between two directories of the mount proceed at a time (s_vfs_rename_mutex). Copying
// as much as the bound allows takes some 30 ms. Programs that get EXDEV copy the object themselves, as mv(1) does.
bool Names::copies_too_much(Job& job, NodeRef directory, const std::string& name) {
  constexpr CopyBound kBound{.objects = 256, .bytes = std::uint64_t{16} << 20};
  const NodeIndex node = mount_.nodes.names().find(directory.node, name);
  if (node != 0) {
    const NodeInfo info = mount_.nodes.info(node);
    if (info.in_upper && !info.is_dir) return false;  // a file of the layer needs no copy
  }
  const Result<std::string> path = [&] {
    const ReaderLock lock(job.overlay.mutex());
    return objects_.child_path(job, directory, name);
  }();
  return path && exceeds(kBound, job.overlay, *path);
}

Result<std::string> Names::rename_object(const Request& request, const Place& old_place,
                                         const Place& new_place, unsigned flags) {
  const NodeRef from = old_place.directory;
  const NodeRef to = new_place.directory;
  const std::string& name = old_place.name;
  const std::string& new_name = new_place.name;
  CACHESHIM_TRY(source, objects_.view_directory(from));
  CACHESHIM_TRY(target, objects_.view_directory(to));
  if (source.job != target.job) return Errno(EXDEV);
  Job& job = *source.job;
  const bool delays_others = from.node != to.node && job.views.are_private();
  if (delays_others && (copies_too_much(job, from, name) ||
                        (flags == RENAME_EXCHANGE && copies_too_much(job, to, new_name))))
    return Errno(EXDEV);
  CACHESHIM_TRY(prepared,
                objects_.prepare_change(mount_.nodes.names().find(from.node, name), kWholeFile,
                                        /*whole_tree=*/true));
  return objects_.change_names(job, [&](Hold hold) -> Result<std::string> {
    job.overlay.mutex().assert_held_shared();
    CACHESHIM_TRY(path, objects_.child_path(job, from, name));
    CACHESHIM_TRY(new_path, objects_.child_path(job, to, new_name));
    NodeNames::Removed kept =
        objects_.prepare_removal(request, to, new_name, new_path, job.overlay);
    UniqueFd new_lock;
    CACHESHIM_CHECK(changes::rename(job.overlay, path, new_path, flags, hold, &new_lock));
    if (path == new_path) return new_path;
    const bool moves_lock = job.overlay.locks().files.is_shared_name(path) ||
                            job.overlay.locks().files.is_shared_name(new_path);
    if (flags == RENAME_EXCHANGE) {
      mount_.nodes.names().exchange(from.node, name, to.node, new_name);
    } else {
      mount_.nodes.names().remove(to.node, new_name, std::move(kept));
      mount_.nodes.names().rename(from.node, name, to.node, new_name);
    }
    const NodeIndex moved = moves_lock ? mount_.nodes.names().find(to.node, new_name) : 0;
    if (moved != 0) {
      CACHESHIM_CHECK(lock_requests_.settle_lock_name(moved, job, new_path, std::move(new_lock)));
    }
    return new_path;
  });
}

void Names::rename(const Request& request, NodeId parent, const char* name, NodeId new_parent,
                   const char* new_name, unsigned flags, StatusCompletion completion) {
  const NodeRef from = decode(parent);
  const NodeRef to = decode(new_parent);
  const NodeId source = encode({mount_.nodes.names().find(from.node, name), from.slot});
  const NodeId target = encode({mount_.nodes.names().find(to.node, new_name), to.slot});
  const Result<std::string> renamed = rename_object(request, {from, name}, {to, new_name}, flags);
  // The kernel itself returns EEXIST if it knows that the new name exists. It has sent this request, so it has cached
  // the new name as absent. ESTALE makes the kernel look up both names again; after EEXIST, it would keep the stale
  // absence.
  const bool is_stale = flags == RENAME_NOREPLACE && renamed.failed_with(EEXIST);
  if (is_stale) return completion.complete(Errno(ESTALE));
  if (!renamed) return completion.complete(renamed.error());
  Job& job = *mount_.nodes.info(to.node).job;
  if (job.overlay.locks().files.is_shared_name(*renamed)) {
    // The kernel caches the new name with the old one's timeout, which is too long for a lock file.
    mount_.invalidation.name_changed(job, std::string(parent_path(*renamed)), new_name);
    return completion.complete({});
  }
  // A rename between two directories blocks all other such renames of the mount: see copies_too_much().
  note_named(request, job, *renamed,
             {.held = {parent, new_parent, source, target},
              .answer = [pending = share(std::move(completion))] { pending->complete({}); },
              .delays_others = parent != new_parent});
}

// Does not publish the baton's entry: its builder has not finished.
void Names::reap(const Baton& baton) {
  Job& job = *baton.job;
  const std::string directory(parent_path(baton.path));
  const std::string name(base_name(baton.path));
  {
    const WriterLock lock(job.overlay.mutex());
    const auto found = job.overlay.find(baton.path);
    const bool is_same = found && found->in_upper && found->st.st_dev == baton.device &&
                         found->st.st_ino == baton.inode;
    if (!is_same) return;  // removed, or created again by another process
    const NodeIndex parent = mount_.nodes.names().find_path(job.view_root, directory);
    NodeNames::Removed kept;
    const uid_t owner = job.views.owner().value_or(0);
    if (parent != 0) kept = objects_.keep_object(job.overlay, {parent, name}, baton.path, owner);
    if (!changes::remove_file(job.overlay, baton.path)) return;
    if (parent != 0) mount_.nodes.names().remove(parent, name, std::move(kept));
  }
  mount_.counters.batons_reaped.fetch_add(1, std::memory_order_relaxed);
  spdlog::info("removed '{}' of job '{}': the process that made it is dead", baton.path, job.id);
  mount_.invalidation.name_changed(job, directory, name);
}

}  // namespace cacheshim
