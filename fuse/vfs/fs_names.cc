// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "fuse/vfs/filesystem.h"
#include "fuse/services/freshness/timeouts.h"
#include "store/sys/process.h"
#include "store/sys/sys.h"

// Names: lookup and forget, and all that makes, removes or moves a name.
namespace cacheshim {

NewObject Filesystem::new_object(const Request& request, mode_t mode, dev_t device) const {
  if (!options_.owners.keep) return NewObject(mode, device, std::nullopt);
  const OwnerRule& owners = options_.owners;
  return NewObject(mode, device,
                   Maker{owners.shown_uid.value_or(request.caller.uid),
                         owners.shown_gid.value_or(request.caller.gid), request.umask});
}

Result<NodeInfo> Filesystem::view_folder(NodeRef parent) {
  const NodeInfo info = nodes_.info(parent.node);
  if (info.kind != NodeKind::kObject) return Errno(EPERM);
  if (info.removed) return Errno(ENOENT);
  info.job->touch();
  return info;
}

Result<std::string> Filesystem::child_path(NodeRef parent, const std::string& name) const {
  CACHESHIM_TRY(folder, nodes_.path(parent.node));
  return join_path(folder, name);
}

Result<Entry> Filesystem::entry_of(NodeRef parent, const NodeInfo& info,
                                              const std::string& name, Found found,
                                              const DirectoryLookup& look) {
  const bool is_common = static_cast<bool>(found.lock);
  const NodeIndex node =
      is_common ? nodes_.intern_common(
                      parent.node, name, info.job,
                      {common_kind(join_path(look.directory, name)), found.st, std::move(found.lock)})
                : nodes_.intern(parent.node, name, info.job, found);
  const NodeRef ref{node, parent.slot};
  CACHESHIM_TRY(st, show(ref, nodes_.info(node), found.st, found.in_upper));
  Entry entry{};
  entry.ino = encode(ref);
  entry.attr = st;
  // What a lock file is, and how many names it has, others may change at any moment, and programs rely
  // on what they see of it while they hold it.
  if (is_common) return entry;
  entry.entry_timeout = timeouts_.of_name(look, &found);
  entry.attr_timeout = timeouts_.of_attributes(look, found, ref);
  if (pending_unlinks_.has(entry.ino)) {
    ++entry.attr.st_nlink;
    entry.attr_timeout = 0;
  }
  return entry;
}

// With Overlay::mutex() held. An entry without a node says that there is nothing, and for how long.
Result<Entry> Filesystem::find_entry(NodeRef parent, const NodeInfo& info,
                                                const std::string& name) {
  CACHESHIM_TRY(folder, nodes_.path(parent.node));
  const DirectoryLookup look = timeouts_.begin(*info.job, folder);
  const std::string path = join_path(folder, name);
  Result<Found> found = info.job->overlay.find(path);
  if (found) return entry_of(parent, info, name, *std::move(found), look);
  if (!found.failed_with(ENOENT)) return found.error();
  Entry nothing{};
  if (!info.job->overlay.is_shared_lock_name(path))
    nothing.entry_timeout = timeouts_.of_name(look, nullptr);
  return nothing;
}

void Filesystem::lookup(const Request& request, NodeId parent_ino, const char* name,
                        EntryCompletion completion) {
  counters_.lookups.fetch_add(1, std::memory_order_relaxed);
  const NodeRef parent = decode(parent_ino);
  const NodeInfo info = nodes_.info(parent.node);
  if (info.kind == NodeKind::kJobsDir) {
    return complete_job(std::move(completion), lookup_job(request, name, false));
  }
  if (info.kind != NodeKind::kObject) {
    return completion.complete(lookup_own(request, parent, info, name));
  }
  if (info.removed) return completion.complete(Errno(ENOENT));
  info.job->touch();
  const auto look = [&] {
    const std::shared_lock lock(info.job->overlay.mutex());
    return find_entry(parent, info, name);
  };
  Result<Entry> entry = look();
  std::vector<std::string> gone;
  if (keeper_.verifies_on_open() && entry && entry->ino != 0) gone = put_damaged_away(decode(entry->ino));
  if (!gone.empty()) {
    nodes_.forget(decode(entry->ino).node, 1);
    entry = look();
  }
  if (entry && entry->ino == 0) {
    counters_.misses.fetch_add(1, std::memory_order_relaxed);
    if (single_flight_.flights() != nullptr) entry = join_flight(request, parent, info, name, *entry);
  }
  if (gone.empty()) return completion.complete(entry);
  invalidation_.gone_before_answer(gone, parent_ino, [pending = share(std::move(completion)), entry] {
    pending->complete(entry);
  });
}

// The kernel has never had what it was answered, since the caller was killed.
void Filesystem::drop_entry(NodeId ino) { nodes_.forget(decode(ino).node, 1); }

void Filesystem::forget(NodeId ino, std::uint64_t count) {
  io_modes_.forget(ino);
  nodes_.forget(decode(ino).node, count);
}

// The same of what has just been made.
Result<Entry> Filesystem::made_entry(NodeRef parent, const NodeInfo& info,
                                                const std::string& name) {
  CACHESHIM_TRY(path, child_path(parent, name));
  if (const auto made = info.job->overlay.find(path)) {
    if (made->lock) lock_removals_.forget(*info.job, made->st);
    nodes_.part(parent.node, name, made->st);
  }
  CACHESHIM_TRY(entry, find_entry(parent, info, name));
  if (entry.ino == 0) return Errno(EIO);  // somebody else has taken it out of the layer
  return entry;
}

Result<Entry> Filesystem::make_entry(
    NodeId parent_ino, const std::string& name,
    const std::function<Status(Overlay&, const std::string&)>& make) {
  const NodeRef parent = decode(parent_ino);
  CACHESHIM_TRY(info, view_folder(parent));
  Overlay& overlay = info.job->overlay;
  return change_names(*info.job, [&](Hold hold) -> Result<Entry> {
    CACHESHIM_TRY(path, child_path(parent, name));
    if (hold == Hold::kShared && !overlay.makes_shared(path)) return Errno(kNeedsExclusive);
    CACHESHIM_CHECK(make(overlay, path));
    return made_entry(parent, info, name);
  });
}

void Filesystem::mkdir(const Request& request, NodeId parent, const char* name, mode_t mode,
                       EntryCompletion completion) {
  const NodeKind kind = nodes_.info(decode(parent).node).kind;
  if (kind == NodeKind::kRoot) {
    return make_in_root(request, name, mode & 07777, std::move(completion));
  }
  if (kind == NodeKind::kJobsDir) {
    return complete_job(std::move(completion), lookup_job(request, name, true));
  }
  const auto made = make_entry(parent, name, [&](Overlay& overlay, const std::string& path) {
    return overlay.make_dir(path, new_object(request, mode & 07777));
  });
  if (made) note_step(decode(parent), name);
  completion.complete(made);
}

Result<Entry> Filesystem::mknod(const Request& request, NodeId parent, const char* name,
                                mode_t mode, dev_t device) {
  // In a squash view, whose objects are all its user's, a device would be that user's too. With
  // owner=keep the kernel asks only for callers who may make devices anywhere. The overlay refuses a device
  // 0:0, which needs no right.
  const bool is_device = S_ISCHR(mode) || S_ISBLK(mode);
  if (is_device && !options_.owners.keep) return Errno(EPERM);
  return make_entry(parent, name, [&](Overlay& overlay, const std::string& path) {
    return overlay.make_node(path, new_object(request, mode, device));
  });
}

void Filesystem::symlink(const Request& request, const char* target, NodeId parent,
                         const char* name, EntryCompletion completion) {
  std::string made;
  const auto entry = make_entry(parent, name, [&](Overlay& overlay, const std::string& path) {
    made = path;
    return overlay.make_symlink(path, target, new_object(request, 0777));
  });
  if (!entry) return completion.complete(entry);
  Job& job = *nodes_.info(decode(parent).node).job;
  single_flight_.note_step(job, made);
  publishing_.rejections().note_changed(job, made, request.caller.tid);
  publishing_.completed(job, made, Arrival::kNamed, {parent, entry->ino},
                    [pending = share(std::move(completion)), entry] { pending->complete(entry); });
}

void Filesystem::link(const Request& request, NodeId ino, NodeId parent_ino, const char* name,
                      EntryCompletion completion) {
  const NodeRef source = decode(ino);
  const NodeRef parent = decode(parent_ino);
  std::string linked;
  Job* job = nullptr;
  const Result<Entry> entry = [&]() -> Result<Entry> {
    const NodeInfo info = nodes_.info(source.node);
    CACHESHIM_TRY(folder, view_folder(parent));
    if (info.job != folder.job) return Errno(EXDEV);
    job = folder.job;
    CACHESHIM_TRY(prepared, prepare_change(source.node));
    pending_unlinks_.end(ino);
    const std::unique_lock lock(job->overlay.mutex());
    CACHESHIM_CHECK(job->ensure_layer(store_.layers()));
    CACHESHIM_TRY(new_path, child_path(parent, name));
    CACHESHIM_CHECK(link_to(source.node, *job, new_path));
    linked = new_path;
    const bool is_lock_name = job->overlay.is_shared_lock_name(new_path);
    if (is_lock_name || info.common != Common::kNone) {
      return add_lock_name(source.node, parent, folder, new_path);
    }
    const DirectoryLookup look = timeouts_.begin(*job, std::string(parent_path(new_path)));
    CACHESHIM_TRY(found, job->overlay.find(new_path));
    nodes_.add_link(source.node, parent.node, name, found.st);
    return entry_of(parent, folder, name, std::move(found), look);
  }();
  if (!entry || job->overlay.is_shared_lock_name(linked)) return completion.complete(entry);
  publishing_.rejections().note_changed(*job, linked, request.caller.tid);
  publishing_.completed(*job, linked, Arrival::kNamed, {parent_ino, ino},
                    [pending = share(std::move(completion)), entry] { pending->complete(entry); });
}

// One of the two names, or both, is a lock file's: a node has only names of one kind, so this gets a node of its own, with
// the same locks. Others may have taken the new name away already, if it is a lock file's. With Overlay::mutex() held
// exclusively.
Result<Entry> Filesystem::add_lock_name(NodeIndex source, NodeRef parent,
                                                   const NodeInfo& folder,
                                                   const std::string& path) {
  CACHESHIM_TRY(object, open_object(source));
  CACHESHIM_TRY(st, sys::stat_fd(object.get()));
  Found found{st, true};
  if (folder.job->overlay.is_shared_lock_name(path)) {
    CACHESHIM_TRY(lock, sys::reopen(object.get(), O_PATH));
    found = {st, false, std::nullopt, std::move(lock)};
  }
  const DirectoryLookup look = timeouts_.begin(*folder.job, std::string(parent_path(path)));
  CACHESHIM_TRY(entry,
                entry_of(parent, folder, std::string(base_name(path)), std::move(found), look));
  for (const NodeIndex node : {source, decode(entry.ino).node}) {
    lock_by_inode(node, [&object] { return sys::reopen(object.get(), O_PATH); });
  }
  return entry;
}

// With Overlay::mutex() held exclusively. A file of the layer that has no name may get its first.
Status Filesystem::link_to(NodeIndex node, Job& job, const std::string& new_path) {
  const NodeInfo info = nodes_.info(node);
  if (info.removed) {
    if (info.object_fd() < 0 || !info.in_upper) return Errno(ENOENT);
    return job.overlay.link_object(info.object_fd(), new_path);
  }
  CACHESHIM_TRY(path, nodes_.path(node));
  return job.overlay.link(path, new_path);
}

Result<std::string> Filesystem::remove_name(NodeId parent_ino, const std::string& name,
                                            const RemoveName& remove) {
  const NodeRef parent = decode(parent_ino);
  CACHESHIM_TRY(info, view_folder(parent));
  Overlay& overlay = info.job->overlay;
  return change_names(*info.job, [&](Hold hold) -> Result<std::string> {
    CACHESHIM_TRY(path, child_path(parent, name));
    NodeTable::Removed kept = prepare_removal(overlay, parent, name, path);
    CACHESHIM_CHECK(remove(*info.job, path, hold));
    nodes_.remove(parent.node, name, std::move(kept));
    return path;
  });
}

void Filesystem::unlink(const Request& request, NodeId parent, const char* name,
                        StatusCompletion completion) {
  const pid_t caller = request.caller.tid;
  // A lock that its holder removes: filelock 3.24 to 3.29 does that before it unlocks.
  bool is_let_go = false;
  const auto remove = [&](Job& job, const std::string& path, Hold hold) -> Status {
    if (job.overlay.is_shared_lock(path)) {
      is_let_go = lock_removals_.is_held_by(job, path, process_of(caller));
      return lock_removals_.remove(job, path, process_of(caller));
    }
    CACHESHIM_CHECK(job.overlay.remove_file(path, hold));
    is_let_go = batons_.is_baton(path);
    if (is_let_go) batons_.forget(job, path);
    return Status();
  };
  // The kernel holds what is removed as well: a late notice, of a folder that had its number, waits for it.
  const NodeRef folder = decode(parent);
  const NodeId victim = encode({nodes_.find(folder.node, name), folder.slot});
  const Result<std::string> removed = remove_name(parent, name, remove);
  if (!removed) return completion.complete(removed.error());
  Job& job = *nodes_.info(folder.node).job;
  single_flight_.note_step(job, *removed, /*is_removed=*/true);
  publishing_.rejections().note_changed(job, *removed, caller);
  const auto answer = [pending = share(std::move(completion))] { pending->complete({}); };
  std::vector<std::string> built;
  if (is_let_go) built = publishing_.take_built(job, *removed);
  if (!built.empty()) return publishing_.built(job, std::move(built), {parent, victim}, answer);
  publishing_.completed(job, *removed, Arrival::kUnlocked, {parent, victim}, answer);
}

Status Filesystem::rmdir(NodeId parent, const char* name) {
  const auto remove = [](Job& job, const std::string& path, Hold hold) {
    return job.overlay.remove_dir(path, hold);
  };
  const Result<std::string> removed = remove_name(parent, name, remove);
  if (removed) single_flight_.note_step(*nodes_.info(decode(parent).node).job, *removed, /*is_removed=*/true);
  return removed ? Status() : removed.error();
}

// Returns the new path.
Result<std::string> Filesystem::rename_object(NodeRef from, const std::string& name, NodeRef to,
                                              const std::string& new_name, unsigned flags) {
  CACHESHIM_TRY(source, view_folder(from));
  CACHESHIM_TRY(target, view_folder(to));
  if (source.job != target.job) return Errno(EXDEV);
  Overlay& overlay = source.job->overlay;
  CACHESHIM_TRY(prepared, prepare_change(nodes_.find(from.node, name), kWholeFile,
                                         /*whole_tree=*/true));
  return change_names(*source.job, [&](Hold hold) -> Result<std::string> {
    CACHESHIM_TRY(path, child_path(from, name));
    CACHESHIM_TRY(new_path, child_path(to, new_name));
    NodeTable::Removed kept = prepare_removal(overlay, to, new_name, new_path);
    UniqueFd new_lock;
    CACHESHIM_CHECK(overlay.rename(path, new_path, flags, hold, &new_lock));
    if (path == new_path) return new_path;
    const bool moves_lock =
        overlay.is_shared_lock_name(path) || overlay.is_shared_lock_name(new_path);
    if (flags == RENAME_EXCHANGE) {
      nodes_.exchange(from.node, name, to.node, new_name);
    } else {
      nodes_.remove(to.node, new_name, std::move(kept));
      nodes_.rename(from.node, name, to.node, new_name);
    }
    const NodeIndex moved = moves_lock ? nodes_.find(to.node, new_name) : 0;
    if (moved != 0) {
      CACHESHIM_CHECK(settle_lock_name(moved, *source.job, new_path, std::move(new_lock)));
    }
    return new_path;
  });
}

void Filesystem::rename(const Request& request, NodeId parent, const char* name, NodeId new_parent,
                        const char* new_name, unsigned flags, StatusCompletion completion) {
  const NodeRef from = decode(parent);
  const NodeRef to = decode(new_parent);
  const NodeId source = encode({nodes_.find(from.node, name), from.slot});
  const NodeId target = encode({nodes_.find(to.node, new_name), to.slot});
  const Result<std::string> renamed = rename_object(from, name, to, new_name, flags);
  // The kernel itself refuses to replace a name that it knows. ESTALE makes it look the names up again; after EEXIST it
  // would go on taking this one for absent.
  const bool is_stale = flags == RENAME_NOREPLACE && renamed.failed_with(EEXIST);
  if (is_stale) return completion.complete(Errno(ESTALE));
  if (!renamed) return completion.complete(renamed.error());
  Job& job = *nodes_.info(to.node).job;
  if (job.overlay.is_shared_lock_name(*renamed)) {
    // The kernel keeps the name for as long as it may keep that of the file that was renamed.
    invalidation_.name_changed(job, std::string(parent_path(*renamed)), new_name);
    return completion.complete({});
  }
  publishing_.note_built(job, *renamed);
  single_flight_.note_step(job, *renamed);
  publishing_.rejections().note_changed(job, *renamed, request.caller.tid);
  publishing_.completed(job, *renamed, Arrival::kNamed, {parent, new_parent, source, target},
                    [pending = share(std::move(completion))] { pending->complete({}); });
}

}  // namespace cacheshim
