// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/hostile/attacker/calls.h"

namespace attacker {
namespace {

void close_file(World& world) { world.close_file(); }

void duplicate(World& world) { world.keep(::dup(world.file())); }

void read_file(World& world) {
  if (world.random().one_in(2)) {
    (void)!::read(world.file(), world.buffer(), world.size());
  } else {
    (void)!::pread(world.file(), world.buffer(), world.size(), world.offset());
  }
}

void write_file(World& world) {
  if (world.random().one_in(2)) {
    (void)!::write(world.file(), world.buffer(), world.size());
  } else {
    (void)!::pwrite(world.file(), world.buffer(), world.size(), world.offset());
  }
}

void seek(World& world) {
  (void)::lseek(world.file(), world.offset(),
                world.random().pick({SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE}));
}

void truncate_file(World& world) { (void)!::ftruncate(world.file(), world.offset()); }

void allocate(World& world) {
  const int mode =
      world.random().flags({FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE,
                            FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE});
  (void)::fallocate(world.file(), mode, world.offset(), static_cast<off_t>(world.size()));
}

void sync_file(World& world) {
  const int file = world.file();
  (void)world.random().pick({::fsync, ::fdatasync})(file);
}

void list(World& world) {
  (void)::syscall(SYS_getdents64, world.file(), world.buffer(), world.size());
}

void stat_file(World& world) {
  struct stat out;
  (void)::fstat(world.file(), &out);
}

void change_file(World& world) {
  (void)::fchmod(world.file(), world.random().pick<mode_t>({0600, 0644, 06755, 0}));
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  (void)::futimens(world.file(), times);
}

void copy_range(World& world) {
  off_t from = world.offset();
  off_t to = world.offset();
  (void)::copy_file_range(world.file(), &from, world.file(), &to, world.size(), 0);
}

void send(World& world) {
  off_t from = world.offset();
  (void)::sendfile(world.file(), world.file(), &from, world.size());
}

void splice_through_pipe(World& world) {
  int ends[2];
  if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return;
  (void)::splice(world.file(), nullptr, ends[1], nullptr, world.size(), SPLICE_F_NONBLOCK);
  (void)::splice(ends[0], nullptr, world.file(), nullptr, world.size(), SPLICE_F_NONBLOCK);
  (void)::close(ends[0]);
  (void)::close(ends[1]);
}

void map_file(World& world) { world.map_file(); }

void unmap(World& world) { world.unmap(); }

void sync_mapping(World& world) {
  char* const start = world.buffer();
  (void)::msync(start, world.size(),
                world.random().pick({MS_SYNC, MS_ASYNC, MS_SYNC | MS_INVALIDATE}));
  (void)::madvise(start, World::kMostBytes, world.random().pick({MADV_WILLNEED, MADV_REMOVE}));
}

void lock_whole(World& world) {
  (void)::flock(world.file(), world.random().pick({LOCK_SH, LOCK_EX, LOCK_UN, LOCK_SH | LOCK_NB,
                                                   LOCK_EX | LOCK_NB}));
}

void lock_range(World& world) {
  Random& random = world.random();
  struct flock lock {};
  lock.l_type = random.pick<short>({F_RDLCK, F_WRLCK, F_UNLCK});
  lock.l_whence = random.pick<short>({SEEK_SET, SEEK_CUR, SEEK_END});
  lock.l_start = random.one_in(2) ? 0 : world.offset();
  lock.l_len = random.pick<off_t>({0, 1, 100, -5, off_t{1} << 62});
  (void)::fcntl(world.file(),
                random.pick({F_SETLK, F_SETLKW, F_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK}),
                &lock);
}

void lease_or_notify(World& world) {
  Random& random = world.random();
  if (random.one_in(2)) {
    (void)::fcntl(world.file(), F_SETLEASE, random.pick({F_RDLCK, F_WRLCK, F_UNLCK}));
  } else {
    (void)::fcntl(world.file(), F_SETFL,
                  O_NONBLOCK | random.flags({O_APPEND, O_DIRECT, O_NOATIME}));
  }
}

void control_device(World& world) {
  const unsigned long request = world.random().pick<unsigned long>(
      {FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FIEMAP, FICLONE, FIONREAD,
       FIGETBSZ, FS_IOC_GETVERSION, 0x80046601});
  if (request == FICLONE) {
    (void)::ioctl(world.file(), request, world.file());
  } else {
    (void)::ioctl(world.file(), request, world.buffer());
  }
}

void poll_file(World& world) {
  pollfd item{world.file(), POLLIN | POLLOUT | POLLPRI, 0};
  (void)::poll(&item, 1, 0);
}

constexpr Call kCalls[] = {
    {"close", close_file},
    {"close", close_file},
    {"dup", duplicate},
    {"read", read_file},
    {"read", read_file},
    {"write", write_file},
    {"write", write_file},
    {"write", write_file},
    {"lseek", seek},
    {"ftruncate", truncate_file},
    {"fallocate", allocate},
    {"fsync", sync_file},
    {"getdents64", list},
    {"getdents64", list},
    {"fstat", stat_file},
    {"fchmod and futimens", change_file},
    {"copy_file_range", copy_range},
    {"sendfile", send},
    {"splice", splice_through_pipe},
    {"mmap", map_file},
    {"munmap", unmap},
    {"msync and madvise", sync_mapping},
    {"flock", lock_whole},
    {"fcntl lock", lock_range},
    {"fcntl lock", lock_range},
    {"F_SETLEASE or F_SETFL", lease_or_notify},
    {"ioctl", control_device},
    {"poll", poll_file},
};

}  // namespace

std::span<const Call> file_calls() { return kCalls; }

}  // namespace attacker
