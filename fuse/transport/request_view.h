// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/fuse.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cacheshim {

// Stands for the name in a request to create an unnamed file (O_TMPFILE).
inline constexpr char kTmpfileName[] = "/";

// A request in the kernel's format, in its buffer.
class RequestView {
 public:
  RequestView(char* bytes, std::size_t size) : bytes_(bytes), size_(size) {}

  char* bytes() const { return bytes_; }
  std::size_t size() const { return size_; }
  // The id of the thread that waits for the answer; 0 if no thread in the daemon's PID namespace does.
  pid_t client() const { return static_cast<pid_t>(header().pid); }

  // Whether the request has the complete structure, names and data of its opcode. libfuse does not check that. A
  // request whose opcode libfuse does not know counts as well-formed.
  bool is_well_formed() const;
  bool expects_reply() const;

  // Turns FUSE_TMPFILE, which libfuse before 3.17 does not know, into FUSE_CREATE with a name that no file can have
  // (kTmpfileName).
  void translate() {
    static_assert(sizeof kTmpfileName == 2);
    constexpr std::uint32_t kTmpfile =
        51;  // FUSE_TMPFILE, linux/fuse.h since 6.1; otherwise like FUSE_CREATE
    constexpr std::size_t kLeast = sizeof(fuse_in_header) + sizeof(fuse_create_in) + 2;
    if (header().opcode != kTmpfile || size_ < kLeast) return;
    header().opcode = FUSE_CREATE;
    std::memcpy(bytes_ + sizeof(fuse_in_header) + sizeof(fuse_create_in), kTmpfileName, 2);
  }

  // Whether the request is probably a read-ahead by the kernel: a read of 128 KiB, the kernel's default read-ahead. The
  // client then continues while the daemon copies the data. Larger reads count as requests that may_take_long().
  bool is_read_ahead() const {
    return header().opcode == FUSE_READ && body<fuse_read_in>().size == kLargeBytes;
  }

  // Whether a request of this kind may take a long time: it syncs, allocates, truncates or copies, or transfers much
  // data.
  bool may_take_long() const {
    switch (header().opcode) {
      case FUSE_FSYNC:
      case FUSE_FSYNCDIR:
      case FUSE_FALLOCATE:
      case FUSE_COPY_FILE_RANGE:
        return true;
      case FUSE_WRITE:
        return size_ > kLargeBytes;
      case FUSE_READ:
        return body<fuse_read_in>().size > kLargeBytes;
      case FUSE_SETATTR:
        return (body<fuse_setattr_in>().valid & FATTR_SIZE) != 0;
      default:
        return false;
    }
  }

 private:
  static constexpr std::size_t kLargeBytes = std::size_t{128} * 1024;

  fuse_in_header& header() const { return *reinterpret_cast<fuse_in_header*>(bytes_); }
  template <class Body>
  const Body& body() const {
    return *reinterpret_cast<const Body*>(bytes_ + sizeof(fuse_in_header));
  }

  char* const bytes_;
  const std::size_t size_;
};

}  // namespace cacheshim
