// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/request_view.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace cacheshim {
namespace {

// The form of a request after its header: a structure of at least `body` bytes, `names` strings with their NULs, and
// data whose length is in the structure.
struct Form {
  std::uint32_t opcode;
  std::size_t body = 0;
  std::uint8_t names = 0;
};

// The part of fuse_init_in that every kernel sends. Newer kernels send more fields (`flags2` and later ones).
constexpr std::size_t kInitBytes = 16;

constexpr std::array kForms = {
    Form{FUSE_LOOKUP, 0, 1},
    Form{FUSE_FORGET, sizeof(fuse_forget_in)},
    Form{FUSE_GETATTR, sizeof(fuse_getattr_in)},
    Form{FUSE_SETATTR, sizeof(fuse_setattr_in)},
    Form{FUSE_SYMLINK, 0, 2},
    Form{FUSE_MKNOD, sizeof(fuse_mknod_in), 1},
    Form{FUSE_MKDIR, sizeof(fuse_mkdir_in), 1},
    Form{FUSE_UNLINK, 0, 1},
    Form{FUSE_RMDIR, 0, 1},
    Form{FUSE_RENAME, sizeof(fuse_rename_in), 2},
    Form{FUSE_RENAME2, sizeof(fuse_rename2_in), 2},
    Form{FUSE_LINK, sizeof(fuse_link_in), 1},
    Form{FUSE_OPEN, sizeof(fuse_open_in)},
    Form{FUSE_READ, sizeof(fuse_read_in)},
    Form{FUSE_WRITE, sizeof(fuse_write_in)},
    Form{FUSE_RELEASE, sizeof(fuse_release_in)},
    Form{FUSE_FSYNC, sizeof(fuse_fsync_in)},
    Form{FUSE_SETXATTR, FUSE_COMPAT_SETXATTR_IN_SIZE, 1},
    Form{FUSE_GETXATTR, sizeof(fuse_getxattr_in), 1},
    Form{FUSE_LISTXATTR, sizeof(fuse_getxattr_in)},
    Form{FUSE_REMOVEXATTR, 0, 1},
    Form{FUSE_FLUSH, sizeof(fuse_flush_in)},
    Form{FUSE_INIT, kInitBytes},
    Form{FUSE_OPENDIR, sizeof(fuse_open_in)},
    Form{FUSE_READDIR, sizeof(fuse_read_in)},
    Form{FUSE_READDIRPLUS, sizeof(fuse_read_in)},
    Form{FUSE_RELEASEDIR, sizeof(fuse_release_in)},
    Form{FUSE_FSYNCDIR, sizeof(fuse_fsync_in)},
    Form{FUSE_GETLK, sizeof(fuse_lk_in)},
    Form{FUSE_SETLK, sizeof(fuse_lk_in)},
    Form{FUSE_SETLKW, sizeof(fuse_lk_in)},
    Form{FUSE_CREATE, sizeof(fuse_create_in), 1},
    Form{FUSE_INTERRUPT, sizeof(fuse_interrupt_in)},
    Form{FUSE_IOCTL, sizeof(fuse_ioctl_in)},
    Form{FUSE_BATCH_FORGET, sizeof(fuse_batch_forget_in)},
    Form{FUSE_FALLOCATE, sizeof(fuse_fallocate_in)},
    Form{FUSE_LSEEK, sizeof(fuse_lseek_in)},
    Form{FUSE_COPY_FILE_RANGE, sizeof(fuse_copy_file_range_in)},
};

// Returns the length of the data after the body and the names.
std::size_t data_bytes(std::uint32_t opcode, const char* body) {
  const auto read = [body](std::size_t offset) {
    std::uint32_t number = 0;
    std::memcpy(&number, body + offset, sizeof number);
    return std::size_t{number};
  };
  switch (opcode) {
    case FUSE_WRITE:
      return read(offsetof(fuse_write_in, size));
    case FUSE_SETXATTR:
      return read(offsetof(fuse_setxattr_in, size));
    case FUSE_BATCH_FORGET:
      return read(offsetof(fuse_batch_forget_in, count)) * sizeof(fuse_forget_one);
    default:
      return 0;
  }
}

// No kernel requests a longer reply: it reads at most 256 pages, or the maximum to which the daemon has agreed.
constexpr std::uint32_t kMostReplyBytes = 16U << 20;

// Returns the size of the buffer that the daemon would allocate for the reply; 0 if the request does not specify a
// size.
std::uint32_t reply_bytes(std::uint32_t opcode, const char* body) {
  if (opcode != FUSE_READ && opcode != FUSE_READDIR) return 0;
  std::uint32_t size = 0;
  std::memcpy(&size, body + offsetof(fuse_read_in, size), sizeof size);
  return size;
}

}  // namespace

bool RequestView::is_well_formed() const {
  if (size_ < sizeof(fuse_in_header) || header().len != size_) return false;
  const auto form = std::find_if(kForms.begin(), kForms.end(), [&](const Form& known) {
    return known.opcode == header().opcode;
  });
  if (form == kForms.end()) return true;  // the request has no arguments, or libfuse replies ENOSYS
  const char* const body = bytes_ + sizeof(fuse_in_header);
  std::string_view rest(body, size_ - sizeof(fuse_in_header));
  if (rest.size() < form->body || reply_bytes(form->opcode, body) > kMostReplyBytes) return false;
  rest.remove_prefix(form->body);
  for (unsigned name = 0; name < form->names; ++name) {
    const auto end = rest.find('\0');
    if (end == std::string_view::npos) return false;
    rest.remove_prefix(end + 1);
  }
  return rest.size() >= data_bytes(form->opcode, body);
}

bool RequestView::expects_reply() const {
  return header().opcode != FUSE_FORGET && header().opcode != FUSE_BATCH_FORGET &&
         header().opcode != FUSE_INTERRUPT;
}

}  // namespace cacheshim
