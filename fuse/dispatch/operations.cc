// SPDX-License-Identifier: Apache-2.0
#include "fuse/dispatch/operations.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <exception>

#include "fuse/transport/request_view.h"
#include "fuse/transport/wire.h"
#include "fuse/vfs/filesystem.h"
#include "store/sys/guard.h"

// The edge between libfuse's C callbacks and Filesystem: no logic, only the one place where what is
// left of exceptions (no memory) becomes EIO.
namespace cacheshim {
namespace {

template <class Handler>
void handle(fuse_req_t req, Handler&& handler) {
  try {
    handler(*static_cast<Filesystem*>(fuse_req_userdata(req)));
  } catch (const std::exception& error) {
    spdlog::error("a request failed: {}; the caller gets EIO", error.what());
    (void)fuse_reply_err(req, EIO);
  }
}

// What changes a layer, that of `ino`: who does it is looked at first.
template <class Handler>
void change(fuse_req_t req, fuse_ino_t ino, Handler&& handler) {
  handle(req, [&](Filesystem& fs) {
    const Status noted = fs.note_change(req, ino);
    if (!noted) return (void)fuse_reply_err(req, noted.error().code());
    handler(fs);
  });
}

// owner=keep: the folder that something is made in decides between its default ACL and the caller's
// umask, so the umask is ours to apply; and the kernel asks for the ACLs that it checks by.
void want_owners(const OwnerRule& owners, fuse_conn_info* connection) {
  if (!owners.keep) return;
  connection->want |= connection->capable & FUSE_CAP_DONT_MASK;
  if (owners.acls) connection->want |= connection->capable & FUSE_CAP_POSIX_ACL;
}

void init(void* filesystem, fuse_conn_info* connection) {
  auto& fs = *static_cast<Filesystem*>(filesystem);
  const bool is_privileged = ::geteuid() == 0;
  const wire::Connection agreed = wire::connect(is_privileged);
  fs.connected(connection->proto_minor, agreed);
  want_owners(fs.options().owners, connection);
  // Symlinks in the root are answered per caller: their answers must never be kept.
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_CACHE_SYMLINKS);
  // The first version of this would leave the bits of files that are written to alone, since we, who
  // write, are root; the second says which writes are to clear them (wire.h).
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_HANDLE_KILLPRIV);
  // Not by comparing times: what we write ourselves changes them. Who else changes data is told of
  // (Notifier), and at open it is seen whether a base file is still as it was.
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA);
  // For answers with much data that go to the device; requests are read by ReceiveLoop.
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_MOVE);
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_WRITE);
  if (!agreed.is_by_rings) connection->want |= connection->capable & FUSE_CAP_SPLICE_WRITE;
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
  connection->want |= connection->capable & (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ATOMIC_O_TRUNC |
                                             FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS);
}

void lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  handle(req, [=](Filesystem& fs) { fs.lookup(req, parent, name); });
}

void forget(fuse_req_t req, fuse_ino_t ino, std::uint64_t count) {
  auto& fs = *static_cast<Filesystem*>(fuse_req_userdata(req));
  (void)run_guarded("a forget", [&] { fs.forget(ino, count); });
  fuse_reply_none(req);
}

void forget_multi(fuse_req_t req, std::size_t count, fuse_forget_data* forgets) {
  auto& fs = *static_cast<Filesystem*>(fuse_req_userdata(req));
  for (std::size_t i = 0; i < count; ++i) {
    (void)run_guarded("a forget", [&] { fs.forget(forgets[i].ino, forgets[i].nlookup); });
  }
  fuse_reply_none(req);
}

void getattr(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.getattr(req, ino, fi); });
}

void setattr(fuse_req_t req, fuse_ino_t ino, struct stat* attr, int to_set, fuse_file_info* fi) {
  change(req, ino, [=](Filesystem& fs) { fs.setattr(req, ino, attr, to_set, fi); });
}

void readlink(fuse_req_t req, fuse_ino_t ino) {
  handle(req, [=](Filesystem& fs) { fs.readlink(req, ino); });
}

void mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  change(req, parent, [=](Filesystem& fs) { fs.mknod(req, parent, name, mode, device); });
}

void mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  change(req, parent, [=](Filesystem& fs) { fs.mkdir(req, parent, name, mode); });
}

void unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  change(req, parent, [=](Filesystem& fs) { fs.unlink(req, parent, name); });
}

void rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  change(req, parent, [=](Filesystem& fs) { fs.rmdir(req, parent, name); });
}

void symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  change(req, parent, [=](Filesystem& fs) { fs.symlink(req, target, parent, name); });
}

void rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
  change(req, parent,
         [=](Filesystem& fs) { fs.rename(req, parent, name, new_parent, new_name, flags); });
}

void link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char* new_name) {
  change(req, new_parent, [=](Filesystem& fs) { fs.link(req, ino, new_parent, new_name); });
}

void create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* fi) {
  if (std::string_view(name) == kTmpfileName) {
    return change(req, parent, [=](Filesystem& fs) { fs.tmpfile(req, parent, mode, fi); });
  }
  change(req, parent, [=](Filesystem& fs) { fs.create(req, parent, name, mode, fi); });
}

void open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) {
    const Status noted = fs.note_open(req, ino, fi->flags);
    if (!noted) return (void)fuse_reply_err(req, noted.error().code());
    fs.open(req, ino, fi);
  });
}

void read(fuse_req_t req, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.read(req, size, offset, fi); });
}

void write(fuse_req_t req, fuse_ino_t ino, const char* data, std::size_t size, off_t offset,
           fuse_file_info* fi) {
  const auto write = [=](Filesystem& fs) { fs.write(req, data, size, offset, fi); };
  // What a mapping has left is written by the kernel, in nobody's name.
  fi->writepage != 0 ? handle(req, write) : change(req, ino, write);
}

void flush(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.flush(req, fi); });
}

void getlk(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, struct flock* lock) {
  handle(req, [=](Filesystem& fs) { fs.getlk(req, fi, *lock); });
}

void setlk(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, struct flock* lock, int sleep) {
  handle(req, [=](Filesystem& fs) { fs.setlk(req, fi, *lock, sleep != 0); });
}

void flock(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, int operation) {
  handle(req, [=](Filesystem& fs) { fs.flock(req, fi, operation); });
}

void release(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.release(req, fi); });
}

void fsync(fuse_req_t req, fuse_ino_t, int datasync, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.fsync(req, datasync, fi); });
}

void fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
               fuse_file_info* fi) {
  change(req, ino, [=](Filesystem& fs) { fs.fallocate(req, mode, offset, length, fi); });
}

void lseek(fuse_req_t req, fuse_ino_t, off_t offset, int whence, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.lseek(req, offset, whence, fi); });
}

void copy_file_range(fuse_req_t req, fuse_ino_t, off_t in, fuse_file_info* fi_in, fuse_ino_t ino,
                     off_t out, fuse_file_info* fi_out, std::size_t length, int) {
  change(req, ino,
         [=](Filesystem& fs) { fs.copy_file_range(req, in, fi_in, out, fi_out, length); });
}

void opendir(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.opendir(req, ino, fi); });
}

void readdir(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.readdir(req, ino, size, offset, fi); });
}

void releasedir(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  handle(req, [=](Filesystem& fs) { fs.releasedir(req, fi); });
}

void fsyncdir(fuse_req_t req, fuse_ino_t ino, int, fuse_file_info*) {
  handle(req, [=](Filesystem& fs) { fs.fsyncdir(req, ino); });
}

void statfs(fuse_req_t req, fuse_ino_t ino) {
  handle(req, [=](Filesystem& fs) { fs.statfs(req, ino); });
}

void setxattr(fuse_req_t req, fuse_ino_t ino, const char* name, const char* value, std::size_t size,
              int flags) {
  change(req, ino, [=](Filesystem& fs) { fs.setxattr(req, ino, name, {value, size}, flags); });
}

void getxattr(fuse_req_t req, fuse_ino_t ino, const char* name, std::size_t size) {
  handle(req, [=](Filesystem& fs) { fs.getxattr(req, ino, name, size); });
}

void listxattr(fuse_req_t req, fuse_ino_t ino, std::size_t size) {
  handle(req, [=](Filesystem& fs) { fs.listxattr(req, ino, size); });
}

void removexattr(fuse_req_t req, fuse_ino_t ino, const char* name) {
  change(req, ino, [=](Filesystem& fs) { fs.removexattr(req, ino, name); });
}

// Answered rather than left to libfuse, whose ENOSYS a program could see.
void ioctl(fuse_req_t req, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned, const void*,
           std::size_t, std::size_t) {
  (void)fuse_reply_err(req, ENOTTY);
}

const fuse_lowlevel_ops& fuse_operations() {
  static const fuse_lowlevel_ops kOperations = [] {
    fuse_lowlevel_ops ops{};
    ops.init = init;
    ops.lookup = lookup;
    ops.forget = forget;
    ops.forget_multi = forget_multi;
    ops.getattr = getattr;
    ops.setattr = setattr;
    ops.readlink = readlink;
    ops.mknod = mknod;
    ops.mkdir = mkdir;
    ops.unlink = unlink;
    ops.rmdir = rmdir;
    ops.symlink = symlink;
    ops.rename = rename;
    ops.link = link;
    ops.create = create;
    ops.open = open;
    ops.read = read;
    ops.write = write;
    ops.flush = flush;
    ops.release = release;
    ops.fsync = fsync;
    ops.fallocate = fallocate;
    ops.lseek = lseek;
    ops.copy_file_range = copy_file_range;
    ops.opendir = opendir;
    ops.readdir = readdir;
    ops.releasedir = releasedir;
    ops.fsyncdir = fsyncdir;
    ops.statfs = statfs;
    ops.setxattr = setxattr;
    ops.getxattr = getxattr;
    ops.listxattr = listxattr;
    ops.removexattr = removexattr;
    ops.ioctl = ioctl;
    ops.getlk = getlk;
    ops.setlk = setlk;
    ops.flock = flock;
    return ops;
  }();
  return kOperations;
}

}  // namespace

RequestHandler request_handler(Filesystem& filesystem) { return {fuse_operations(), &filesystem}; }

}  // namespace cacheshim
