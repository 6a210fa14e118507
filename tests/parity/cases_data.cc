// SPDX-License-Identifier: Apache-2.0
// Tests the bytes of files: read, write, truncate, holes, copies, mappings.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tests/parity/case_list.h"

namespace cacheshim::parity {
namespace {

void reads(Side& side, const std::string& name) {
  const UniqueFd fd = side.open(name, O_RDONLY);
  if (!fd) return;
  std::array<char, 4096> bytes;
  side.did("read", ::read(fd.get(), bytes.data(), bytes.size()));
  side.did("read", ::read(fd.get(), bytes.data(), 7));
  side.did("lseek(end)", ::lseek(fd.get(), 0, SEEK_END));
  side.did("read at end", ::read(fd.get(), bytes.data(), bytes.size()));
  side.did("lseek(-5)", ::lseek(fd.get(), -5, SEEK_END));
  side.did("read", ::read(fd.get(), bytes.data(), bytes.size()));
  side.did("lseek(before the start)", ::lseek(fd.get(), -1, SEEK_SET));
  side.did("pread past the end", ::pread(fd.get(), bytes.data(), 10, 1 << 20));
  iovec parts[2] = {{bytes.data(), 100}, {bytes.data() + 100, 200}};
  side.did("preadv", ::preadv(fd.get(), parts, 2, 50));
  side.note(fingerprint({bytes.data(), 300}));
  side.did("write to a reader", ::write(fd.get(), "x", 1));
}

void writes(Side& side, const std::string& name) {
  const UniqueFd fd = side.open(name, O_RDWR);
  if (!fd) return;
  side.write(fd.get(), "at the start");
  side.pwrite(fd.get(), pattern("across", 9000), 3000);
  side.pwrite(fd.get(), "after a hole", 40000);
  char parts_text[] = "onetwo";
  const iovec parts[2] = {{parts_text, 3}, {parts_text + 3, 3}};
  side.did("pwritev", ::pwritev(fd.get(), parts, 2, 20));
  side.did("fsync", ::fsync(fd.get()));
  side.did("fdatasync", ::fdatasync(fd.get()));
  side.contents(fd.get());
  side.contents(name);
}

void truncations(Side& side, const std::string& name) {
  const std::string path = side.path_of(name);
  for (const off_t size : {5000, 0, 12345, -1}) {
    side.did("truncate(" + std::to_string(size) + ")", ::truncate(path.c_str(), size));
    side.stat(name);
  }
  side.contents(name);
  if (const UniqueFd fd = side.open(name, O_WRONLY)) {
    side.did("ftruncate", ::ftruncate(fd.get(), 777));
    side.fstat(fd.get(), "truncated");
  }
  if (const UniqueFd fd = side.open(name, O_RDONLY)) {
    side.did("ftruncate of a reader", ::ftruncate(fd.get(), 1));
  }
}

void truncate_once(Side& side, const std::string& name) {
  side.did("truncate", ::truncate(side.path_of(name).c_str(), 100));
}

void allocation(Side& side, const std::string& name) {
  const UniqueFd fd = side.open(name, O_RDWR);
  if (!fd) return;
  side.did("fallocate", ::fallocate(fd.get(), 0, 4000, 20000));
  side.fstat(fd.get(), "allocated");
  side.did("fallocate KEEP_SIZE", ::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, 1 << 20));
  side.fstat(fd.get(), "kept size");
  side.did("fallocate PUNCH_HOLE",
           ::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1000, 3000));
  side.contents(fd.get());
  side.did("fallocate ZERO_RANGE", ::fallocate(fd.get(), FALLOC_FL_ZERO_RANGE, 5000, 100));
  side.did("fallocate of nothing", ::fallocate(fd.get(), 0, 0, 0));
  side.did("fallocate negative", ::fallocate(fd.get(), 0, -1, 10));
  side.did("posix_fallocate", ::posix_fallocate(fd.get(), 0, 100));
  side.contents(fd.get());
}

void holes(Side& side, const std::string& name) {
  const UniqueFd fd = side.open(name, O_RDWR);
  if (!fd) return;
  side.did("ftruncate", ::ftruncate(fd.get(), 0));
  side.did("ftruncate", ::ftruncate(fd.get(), 1 << 20));
  side.pwrite(fd.get(), pattern("data", 65536), 1 << 18);
  side.did("fsync", ::fsync(fd.get()));
  side.did("SEEK_DATA 0", ::lseek(fd.get(), 0, SEEK_DATA));
  side.did("SEEK_HOLE 0", ::lseek(fd.get(), 0, SEEK_HOLE));
  side.did("SEEK_HOLE data", ::lseek(fd.get(), 1 << 18, SEEK_HOLE));
  side.did("SEEK_DATA behind", ::lseek(fd.get(), 1 << 19, SEEK_DATA));
  side.did("SEEK_HOLE past the end", ::lseek(fd.get(), 1 << 21, SEEK_HOLE));
}

void copies(Side& side, const std::string& name) {
  const UniqueFd from = side.open(name, O_RDONLY);
  const UniqueFd to = side.open("copy", O_RDWR | O_CREAT);
  if (!from || !to) return;
  off64_t offset = 10;
  side.did("copy_file_range", ::copy_file_range(from.get(), &offset, to.get(), nullptr, 3000, 0));
  side.did("sendfile", ::sendfile(to.get(), from.get(), nullptr, 2000));
  side.contents(to.get());
  if (const UniqueFd back = side.open(name, O_RDWR)) {
    side.did("lseek", ::lseek(to.get(), 0, SEEK_SET));
    side.did("copy_file_range", ::copy_file_range(to.get(), nullptr, back.get(), nullptr, 100, 0));
    side.contents(back.get());
  }
}

void shared_mapping(Side& side, const std::string& name) {
  const UniqueFd fd = side.open(name, O_RDWR);
  if (!fd) return;
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  side.did("mmap", memory == MAP_FAILED ? -1 : 0);
  if (memory == MAP_FAILED) return;
  side.note(fingerprint({static_cast<char*>(memory), 100}));
  (void)std::memcpy(static_cast<char*>(memory) + 50, "through the mapping", 19);
  side.did("msync", ::msync(memory, 4096, MS_SYNC));
  side.contents(name);
  side.pwrite(fd.get(), "through the descriptor", 200);
  side.note(fingerprint({static_cast<char*>(memory) + 200, 22}));
  side.did("munmap", ::munmap(memory, 4096));
  side.contents(name);
}

// Maps the file read-only and shared, and then writes to the file through another descriptor.
void reader_mapping(Side& side, const std::string& name) {
  const UniqueFd fd = side.open(name, O_RDONLY);
  if (!fd) return;
  void* memory = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0);
  side.did("mmap", memory == MAP_FAILED ? -1 : 0);
  if (memory == MAP_FAILED) return;
  side.note(fingerprint({static_cast<char*>(memory), 4096}));
  if (const UniqueFd writer = side.open(name, O_WRONLY)) side.pwrite(writer.get(), "changed", 10);
  side.note(fingerprint({static_cast<char*>(memory), 4096}));
  side.did("munmap", ::munmap(memory, 4096));
}

void large_file(Side& side) {
  const UniqueFd fd = side.open("large", O_RDWR | O_CREAT);
  if (!fd) return;
  for (int piece = 0; piece < 20; ++piece) {
    side.write(fd.get(), pattern("piece " + std::to_string(piece), 700001));
  }
  side.pwrite(fd.get(), "beyond 4 GiB", (1LL << 32) + 5);
  side.fstat(fd.get(), "large");
  side.did("ftruncate", ::ftruncate(fd.get(), 14000020));
  side.contents(fd.get());
}

}  // namespace

void add_data_cases(CaseList& list) {
  list.add_for_each("reads", file_names(), reads);
  list.add_for_each("writes", file_names(), writes);
  list.add_for_each("truncations", file_names(), truncations);
  list.add_for_each("truncate", all_names(), truncate_once);
  list.add_for_each("allocation", file_names(), allocation);
  list.add_for_each("holes", file_names(), holes);
  list.add_for_each("copies", file_names(), copies);
  list.add_for_each("shared mapping", file_names(), shared_mapping);
  list.add_for_each("reader mapping", file_names(), reader_mapping);
  list.add("large file", {}, large_file);
}

}  // namespace cacheshim::parity
