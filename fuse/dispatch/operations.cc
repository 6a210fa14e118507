// SPDX-License-Identifier: Apache-2.0
#include "fuse/dispatch/operations.h"

#include <dirent.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fuse/control/control_session.h"
#include "fuse/dispatch/replies.h"
#include "fuse/transport/request_view.h"
#include "fuse/transport/wire.h"
#include "fuse/vfs/filesystem.h"
#include "store/threads/guard.h"

// Connects libfuse's C callbacks with Filesystem: unpacks a request and replies with the result. An
// exception (only std::bad_alloc is expected) becomes EIO.
namespace cacheshim {
namespace {

using std::string_view;

Request request_of(fuse_req_t req) {
  const fuse_ctx* const context = fuse_req_ctx(req);
  return {{context->uid, context->gid, context->pid}, context->umask};
}

Request change_request_of(fuse_req_t req) {
  Request request = request_of(req);
  request.kills_set_ids = wire::kills_set_ids();
  return request;
}

Request lock_request_of(fuse_req_t req) {
  Request request = request_of(req);
  request.lock_process = wire::lock_process();
  return request;
}

std::optional<std::uint64_t> handle_of(const fuse_file_info* fi) {
  return fi == nullptr ? std::nullopt : std::optional(fi->fh);
}

// Throws if the request names an unknown node. The kernel should never send such a request, but this check is
// necessary, because the operations and the tables use a node without checking it.
void require_known_nodes(const Filesystem& fs) {
  const auto require = [&](std::uint64_t id) {
    if (!fs.mount.nodes.is_known(decode(id).node)) throw std::out_of_range("unknown node");
  };
  const auto [first, second] = wire::nodes();
  require(first);
  if (second != first) require(second);
}

// Runs `answer`, which replies to the request. If `answer` throws, the caller gets EIO. This function sends that reply,
// unless `replies_itself` is true: then the request's completion sends it when it is destroyed unused.
template <class Answer>
void guard(fuse_req_t req, Answer&& answer, bool replies_itself) {
  try {
    Filesystem& fs = *static_cast<Filesystem*>(fuse_req_userdata(req));
    require_known_nodes(fs);
    answer(fs);
  } catch (const std::exception& error) {
    spdlog::error("a request failed: {}; the caller gets EIO", error.what());
    if (!replies_itself) (void)fuse_reply_err(req, EIO);
  }
}

template <class Answer>
void handle(fuse_req_t req, Answer&& answer) {
  guard(req, std::forward<Answer>(answer), false);
}

// Handles a request that changes the layer of `ino`: checks the caller before it runs `answer`.
template <class Answer>
void change(fuse_req_t req, fuse_ino_t ino, Answer&& answer) {
  handle(req, [&](Filesystem& fs) {
    const Status noted = fs.change_guard.note_change(request_of(req), ino);
    noted ? answer(fs) : replies::status(req, noted);
  });
}

// Handles a request that may be completed later: passes the completion to `complete`.
template <class R, class Handler>
void handle_later(fuse_req_t req, Completion<R> completion, Handler&& complete) {
  guard(
      req, [&](Filesystem& fs) { complete(fs, std::move(completion)); }, true);
}

template <class R, class Handler>
void change_later(fuse_req_t req, fuse_ino_t ino, Completion<R> completion, Handler&& complete) {
  handle_later(req, std::move(completion), [&](Filesystem& fs, Completion<R> pending) {
    const Status noted = fs.change_guard.note_change(request_of(req), ino);
    noted ? complete(fs, std::move(pending)) : pending.complete(noted.error());
  });
}

// With owner=keep, the umask restricts a new object only if the parent has no default ACL, so the daemon must apply the
// umask, not the kernel. To check permissions, the kernel reads the ACLs from the daemon.
void want_owners(const OwnerMode& owners, fuse_conn_info* connection) {
  if (!owners.keep) return;
  connection->want |= connection->capable & FUSE_CAP_DONT_MASK;
  if (owners.acls) connection->want |= connection->capable & FUSE_CAP_POSIX_ACL;
}

void init(void* filesystem, fuse_conn_info* connection) {
  auto& fs = *static_cast<Filesystem*>(filesystem);
  const bool is_privileged = ::geteuid() == 0;
  const wire::Connection agreed = wire::connect(is_privileged);
  fs.mount.connected({connection->proto_minor, agreed.can_pass_through, agreed.uses_io_uring});
  want_owners(fs.mount.options.owners, connection);
  // The target of a symlink in the root depends on the caller, so the kernel must never cache it.
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_CACHE_SYMLINKS);
  // With version 1 of this feature, the daemon's own write to the backing file would have to clear the set-id bits, but
  // a write by root keeps them. With version 2, the kernel marks the writes that must clear them (wire.h).
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_HANDLE_KILLPRIV);
  // With this feature, the kernel would drop a file's cached pages whenever the mtime changes, even if the daemon's own
  // write has changed it. The daemon invalidates data that others change (Notifier), and checks at each open whether a
  // base file has changed.
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA);
  // Splice is used only for large replies over /dev/fuse. ReceiveLoop reads the requests without
  // it.
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_MOVE);
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_WRITE);
  if (!agreed.uses_io_uring) connection->want |= connection->capable & FUSE_CAP_SPLICE_WRITE;
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
  connection->want |= connection->capable & (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ATOMIC_O_TRUNC |
                                             FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS);
}

void lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  handle_later(req, replies::entry_of(req), [=](Filesystem& fs, EntryCompletion completion) {
    fs.names.lookup(request_of(req), parent, name, std::move(completion));
  });
}

void forget(fuse_req_t req, fuse_ino_t ino, std::uint64_t count) {
  auto& fs = *static_cast<Filesystem*>(fuse_req_userdata(req));
  (void)run_guarded("a forget", [&] { fs.names.forget(ino, count); });
  fuse_reply_none(req);
}

void forget_multi(fuse_req_t req, std::size_t count, fuse_forget_data* forgets) {
  auto& fs = *static_cast<Filesystem*>(fuse_req_userdata(req));
  for (std::size_t i = 0; i < count; ++i) {
    (void)run_guarded("a forget", [&] { fs.names.forget(forgets[i].ino, forgets[i].nlookup); });
  }
  fuse_reply_none(req);
}

void getattr(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  handle_later(req, replies::attributes_of(req),
               [=](Filesystem& fs, AttributesCompletion completion) {
                 fs.attributes.getattr(request_of(req), ino, handle_of(fi), std::move(completion));
               });
}

void setattr(fuse_req_t req, fuse_ino_t ino, struct stat* attr, int to_set, fuse_file_info* fi) {
  change(req, ino, [=, request = change_request_of(req)](Filesystem& fs) {
    replies::attributes(req, fs.attributes.setattr(request, ino, *attr, to_set, handle_of(fi)));
  });
}

void readlink(fuse_req_t req, fuse_ino_t ino) {
  handle(req, [=](Filesystem& fs) {
    const auto target = fs.attributes.readlink(request_of(req), ino);
    if (!target) return replies::status(req, target.error());
    (void)fuse_reply_readlink(req, target->c_str());
  });
}

void mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  change(req, parent, [=](Filesystem& fs) {
    replies::entry(req, fs.names.mknod(request_of(req), parent, name, mode, device));
  });
}

void mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  change_later(req, parent, replies::entry_of(req),
               [=](Filesystem& fs, EntryCompletion completion) {
                 fs.names.mkdir(request_of(req), parent, name, mode, std::move(completion));
               });
}

void unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  change_later(req, parent, replies::status_of(req),
               [=](Filesystem& fs, StatusCompletion completion) {
                 fs.names.unlink(request_of(req), parent, name, std::move(completion));
               });
}

void rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  change_later(req, parent, replies::status_of(req),
               [=](Filesystem& fs, StatusCompletion completion) {
                 fs.names.rmdir(request_of(req), parent, name, std::move(completion));
               });
}

void symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  change_later(req, parent, replies::entry_of(req),
               [=](Filesystem& fs, EntryCompletion completion) {
                 fs.names.symlink(request_of(req), target, parent, name, std::move(completion));
               });
}

void rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  change_later(req, parent, replies::status_of(req),
               [=](Filesystem& fs, StatusCompletion completion) {
                 fs.names.rename(request_of(req), parent, name, new_parent, new_name, flags,
                           std::move(completion));
               });
}

void link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char* new_name) {
  change_later(req, new_parent, replies::entry_of(req),
               [=](Filesystem& fs, EntryCompletion completion) {
                 fs.names.link(request_of(req), ino, new_parent, new_name, std::move(completion));
               });
}

void create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* fi) {
  change(req, parent, [=](Filesystem& fs) {
    const Request request = request_of(req);
    replies::created(req, string_view(name) == kTmpfileName
                              ? fs.files.tmpfile(request, parent, mode, fi->flags)
                              : fs.files.create(request, parent, name, mode, fi->flags));
  });
}

void open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  handle_later(req, replies::opened_of(req), [=](Filesystem& fs, OpenCompletion completion) {
    const Request request = request_of(req);
    const Status noted = fs.change_guard.note_open(request, ino, fi->flags);
    if (!noted) return completion.complete(noted.error());
    fs.files.open(request, ino, fi->flags, std::move(completion));
  });
}

void read(fuse_req_t req, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) {
    const Result<ReadSource> source = fs.file_data.read({fi->fh, fi->flags});
    if (!source) return replies::status(req, source.error());
    if (source->control) return source->control->read(replies::text_of(req), size);
    if (source->fd >= 0) return replies::data(req, source->fd, size, offset);
    const string_view all = source->text;
    replies::text(req, all.substr(std::min(all.size(), static_cast<std::size_t>(offset)), size));
  });
}

void write(fuse_req_t req, fuse_ino_t ino, const char* data, std::size_t size, off_t offset,
           fuse_file_info* fi) {
  const auto write = [=, request = change_request_of(req)](Filesystem& fs) {
    replies::written(req, fs.file_data.write(request, {fi->fh, fi->flags}, {data, size}, offset));
  };
  // When the kernel writes back the pages of a mapping, the request has no caller to check.
  fi->writepage != 0 ? handle(req, write) : change(req, ino, write);
}

void flush(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) {
    replies::status(req, fs.locks.flush(request_of(req), {fi->fh, fi->lock_owner}));
  });
}

void getlk(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, struct flock* lock) {
  handle(req, [=](Filesystem& fs) {
    const auto found = fs.locks.getlk(lock_request_of(req), {fi->fh, fi->lock_owner}, *lock);
    if (!found) return replies::status(req, found.error());
    (void)fuse_reply_lock(req, &*found);
  });
}

void setlk(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, struct flock* lock, int sleep) {
  handle_later(req, replies::status_of(req), [=](Filesystem& fs, StatusCompletion completion) {
    fs.locks.setlk(lock_request_of(req), {fi->fh, fi->lock_owner}, *lock, sleep != 0,
             std::move(completion));
  });
}

void flock(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, int operation) {
  handle_later(req, replies::status_of(req), [=](Filesystem& fs, StatusCompletion completion) {
    fs.locks.flock(lock_request_of(req), fi->fh, operation, std::move(completion));
  });
}

void release(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) {
    fs.files.release(fi->fh);
    replies::status(req, {});
  });
}

void fsync(fuse_req_t req, fuse_ino_t, int datasync, fuse_file_info* fi) {
  handle(req,
         [=](Filesystem& fs) { replies::status(req, fs.file_data.fsync(fi->fh, datasync != 0)); });
}

void fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
               fuse_file_info* fi) {
  change(req, ino, [=](Filesystem& fs) {
    replies::status(req, fs.file_data.fallocate(fi->fh, mode, offset, length));
  });
}

void lseek(fuse_req_t req, fuse_ino_t, off_t offset, int whence, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) {
    const auto at = fs.file_data.lseek(fi->fh, offset, whence);
    (void)(at ? fuse_reply_lseek(req, *at) : fuse_reply_err(req, at.error().code()));
  });
}

void copy_file_range(fuse_req_t req, fuse_ino_t, off_t in, fuse_file_info* fi_in, fuse_ino_t ino,
                     off_t out, fuse_file_info* fi_out, std::size_t length, int) {
  change(req, ino, [=](Filesystem& fs) {
    replies::written(req, fs.file_data.copy_file_range(fi_in->fh, in, fi_out->fh, out, length));
  });
}

void opendir(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) {
  handle(req, [=](Filesystem& fs) {
    replies::opened_directory(req, fs.directories.opendir(request_of(req), ino));
  });
}

void readdir(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) {
    std::vector<char> buffer(size);
    std::size_t used = 0;
    const auto add = [&](const ListedEntry& entry, off_t next) {
      struct stat st {};
      st.st_ino = entry.ino;
      st.st_mode = static_cast<mode_t>(DTTOIF(entry.type));
      const std::size_t need =
          fuse_add_direntry(req, buffer.data() + used, size - used, entry.name.c_str(), &st, next);
      if (need > size - used) return false;
      used += need;
      return true;
    };
    const Status listed = fs.directories.readdir(request_of(req), ino, fi->fh, offset, add);
    listed ? replies::text(req, string_view(buffer.data(), used)) : replies::status(req, listed);
  });
}

void releasedir(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) {
    fs.directories.releasedir(fi->fh);
    replies::status(req, {});
  });
}

void fsyncdir(fuse_req_t req, fuse_ino_t ino, int, fuse_file_info*) {
  handle(req, [=](Filesystem& fs) { replies::status(req, fs.directories.fsyncdir(ino)); });
}

void statfs(fuse_req_t req, fuse_ino_t ino) {
  handle(req, [=](Filesystem& fs) {
    const auto found = fs.attributes.statfs(ino);
    if (!found) return replies::status(req, found.error());
    (void)fuse_reply_statfs(req, &*found);
  });
}

void setxattr(fuse_req_t req, fuse_ino_t ino, const char* name, const char* value, std::size_t size,
              int flags) {
  change(req, ino, [=](Filesystem& fs) {
    replies::status(req, fs.attributes.setxattr(request_of(req), ino, name, {value, size}, flags));
  });
}

void getxattr(fuse_req_t req, fuse_ino_t ino, const char* name, std::size_t size) {
  handle(req, [=](Filesystem& fs) { replies::xattr(req, fs.attributes.getxattr(ino, name), size); });
}

void listxattr(fuse_req_t req, fuse_ino_t ino, std::size_t size) {
  handle(req, [=](Filesystem& fs) { replies::xattr(req, fs.attributes.listxattr(ino), size); });
}

void removexattr(fuse_req_t req, fuse_ino_t ino, const char* name) {
  change(req, ino, [=](Filesystem& fs) { replies::status(req, fs.attributes.removexattr(ino, name)); });
}

// Without this function, libfuse would reply ENOSYS, which programs do not expect from ioctl(2).
void ioctl(fuse_req_t req, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*,
           std::size_t, std::size_t) {
  (void)fuse_reply_err(req, ENOTTY);
}

void add_name_operations(fuse_lowlevel_ops& ops) {
  ops.lookup = lookup;
  ops.forget = forget;
  ops.forget_multi = forget_multi;
  ops.mknod = mknod;
  ops.mkdir = mkdir;
  ops.unlink = unlink;
  ops.rmdir = rmdir;
  ops.symlink = symlink;
  ops.rename = rename;
  ops.link = link;
}

void add_attribute_operations(fuse_lowlevel_ops& ops) {
  ops.getattr = getattr;
  ops.setattr = setattr;
  ops.readlink = readlink;
  ops.statfs = statfs;
  ops.setxattr = setxattr;
  ops.getxattr = getxattr;
  ops.listxattr = listxattr;
  ops.removexattr = removexattr;
}

void add_file_operations(fuse_lowlevel_ops& ops) {
  ops.create = create;
  ops.open = open;
  ops.read = read;
  ops.write = write;
  ops.release = release;
  ops.fsync = fsync;
  ops.fallocate = fallocate;
  ops.lseek = lseek;
  ops.copy_file_range = copy_file_range;
  ops.ioctl = ioctl;
}

void add_lock_operations(fuse_lowlevel_ops& ops) {
  ops.flush = flush;
  ops.getlk = getlk;
  ops.setlk = setlk;
  ops.flock = flock;
}

void add_directory_operations(fuse_lowlevel_ops& ops) {
  ops.opendir = opendir;
  ops.readdir = readdir;
  ops.releasedir = releasedir;
  ops.fsyncdir = fsyncdir;
}

const fuse_lowlevel_ops& fuse_operations() {
  static const fuse_lowlevel_ops kOperations = [] {
    fuse_lowlevel_ops ops{};
    ops.init = init;
    add_name_operations(ops);
    add_attribute_operations(ops);
    add_file_operations(ops);
    add_lock_operations(ops);
    add_directory_operations(ops);
    return ops;
  }();
  return kOperations;
}

}  // namespace

RequestHandler request_handler(Filesystem& filesystem) { return {fuse_operations(), &filesystem}; }

}  // namespace cacheshim
