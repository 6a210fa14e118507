// SPDX-License-Identifier: Apache-2.0
#include "store/sys/file_system.h"

#include <sys/vfs.h>

#include <algorithm>
#include <iterator>

namespace cacheshim {
namespace {

// Sources: linux/magic.h and the file systems' own sources. An overlayfs counts as local, although its lower directory
// may be on a server, because nothing may change the lower directory while the overlay is mounted (overlayfs.rst).
constexpr unsigned long kLocal[] = {
    0xef53,      // ext2, ext3, ext4
    0x58465342,  // XFS
    0x9123683e,  // Btrfs
    0x2fc12fc1,  // ZFS
    0xca451a4e,  // bcachefs
    0xf2f52010,  // F2FS
    0x3153464a,  // JFS
    0x52654973,  // ReiserFS
    0x3434,      // NILFS
    0x4d44,      // FAT
    0x2011bab0,  // exFAT
    0x7366746e,  // NTFS
    0x01021994,  // tmpfs
    0x858458f6,  // ramfs
    0x794c7630,  // overlayfs
    0x73717368,  // squashfs
    0xe0f5e1e2,  // EROFS
    0x9660,      // ISO 9660
    0x15013346,  // UDF
};

}  // namespace

bool is_local_file_system(int fd) {
  struct statfs st {};
  if (::fstatfs(fd, &st) == -1) return false;
  const auto type = static_cast<unsigned long>(st.f_type) & 0xffffffffUL;
  return std::find(std::begin(kLocal), std::end(kLocal), type) != std::end(kLocal);
}

}  // namespace cacheshim
