// SPDX-License-Identifier: Apache-2.0
#include "store/sys/copy_file.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "store/sys/new_object.h"
#include "store/sys/sys.h"
#include "store/sys/whiteout.h"

namespace cacheshim {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{256} * 1024;

Status copy_by_hand(int source, int target, off_t begin, off_t end) {
  const auto buffer = std::make_unique<char[]>(kBufferBytes);
  while (begin < end) {
    const auto want = std::min<std::size_t>(kBufferBytes, static_cast<std::size_t>(end - begin));
    const ssize_t count = ::pread(source, buffer.get(), want, begin);
    if (count == -1) return Errno::last();
    if (count == 0) return {};
    for (ssize_t done = 0; done < count;) {
      const ssize_t written = ::pwrite(target, buffer.get() + done,
                                       static_cast<std::size_t>(count - done), begin + done);
      if (written == -1) return Errno::last();
      done += written;
    }
    begin += count;
  }
  return {};
}

Status copy_range(int source, int target, off_t begin, off_t end) {
  while (begin < end) {
    off_t in = begin;
    off_t out = begin;
    const ssize_t count =
        ::copy_file_range(source, &in, target, &out, static_cast<std::size_t>(end - begin), 0);
    if (count == -1 && errno != ENOSPC && errno != EDQUOT && errno != EIO) {
      return copy_by_hand(source, target, begin, end);
    }
    if (count == -1) return Errno::last();
    if (count == 0) return {};
    begin += count;
  }
  return {};
}

Status copy_data(int source, int target, const struct stat& st, off_t size) {
  if (::ioctl(target, FICLONE, source) == 0) return sys::set_size(target, size);
  constexpr off_t kBlock = 512;  // the unit of st_blocks
  // The file has no holes.
  if (st.st_blocks * kBlock >= st.st_size) return copy_range(source, target, 0, size);
  for (off_t at = 0; at < size;) {
    const off_t data = ::lseek(source, at, SEEK_DATA);
    if (data == -1 && errno == ENXIO) break;  // the rest of the file is a hole
    const off_t begin = data == -1 ? at : data;
    const off_t hole = data == -1 ? size : ::lseek(source, begin, SEEK_HOLE);
    const off_t end = std::min(size, hole == -1 ? size : hole);
    if (begin >= size) break;
    CACHESHIM_CHECK(copy_range(source, target, begin, end));
    at = end;
  }
  return sys::set_size(target, size);
}

bool is_wanted_first(const std::string& xattr) {
  return xattr.starts_with("user.") && !is_overlay_xattr(xattr);
}

// Whether to copy the xattr after owner and mode, because chown(2) and chmod(2) change it.
bool is_wanted_last(const std::string& xattr) {
  return xattr == "system.posix_acl_access" || xattr == "system.posix_acl_default" ||
         xattr == "security.capability";
}

Status copy_xattrs(int source, int target, const std::vector<std::string>& names,
                   bool (*is_wanted)(const std::string&)) {
  for (const std::string& name : names) {
    if (!is_wanted(name)) continue;
    CACHESHIM_TRY(value, sys::get_xattr(source, name.c_str()));
    CACHESHIM_CHECK(sys::set_xattr(target, name.c_str(), value, 0));
  }
  return {};
}

Status copy_times(int target, const struct stat& st) {
  const timespec times[2] = {st.st_atim, st.st_mtim};
  return sys::set_times(target, times);
}

}  // namespace

Result<bool> copy_owner(int target, const struct stat& st) {
  CACHESHIM_TRY(now, sys::stat_fd(target));
  if (now.st_uid == st.st_uid && now.st_gid == st.st_gid) return true;
  return give_away(target, st.st_uid, st.st_gid);
}

Status copy_attributes(int source, int target, const struct stat& st, bool keep_owner) {
  const auto listed = sys::list_xattrs(source);
  // If the file system has no xattrs, there is nothing to copy.
  const std::vector<std::string> names = listed ? *listed : std::vector<std::string>();
  CACHESHIM_CHECK(copy_xattrs(source, target, names, is_wanted_first));
  mode_t mode = st.st_mode & 07777;
  if (keep_owner) {
    CACHESHIM_TRY(kept, copy_owner(target, st));
    // A set-id file must not run as the service account.
    if (!kept && !S_ISDIR(st.st_mode)) mode &= ~static_cast<mode_t>(S_ISUID | S_ISGID);
  }
  CACHESHIM_CHECK(sys::set_mode(target, mode));
  if (keep_owner) CACHESHIM_CHECK(copy_xattrs(source, target, names, is_wanted_last));
  return copy_times(target, st);
}

Status copy_file(int source, int target, const CopyOptions& options) {
  CACHESHIM_TRY(st, sys::stat_fd(source));
  const off_t size = std::min(st.st_size, options.keep_bytes);
  if (size > 0) CACHESHIM_CHECK(copy_data(source, target, st, size));
  if (options.is_for_base) return copy_times(target, st);
  return copy_attributes(source, target, st, options.keep_owner);
}

Result<bool> have_equal_content(int left, int right) {
  CACHESHIM_TRY(left_st, sys::stat_fd(left));
  CACHESHIM_TRY(right_st, sys::stat_fd(right));
  if (left_st.st_dev == right_st.st_dev && left_st.st_ino == right_st.st_ino) return true;
  if (left_st.st_size != right_st.st_size) return false;
  const auto buffer = std::make_unique<char[]>(2 * kBufferBytes);
  char* const other = buffer.get() + kBufferBytes;
  for (off_t at = 0; at < left_st.st_size;) {
    const ssize_t count = ::pread(left, buffer.get(), kBufferBytes, at);
    if (count == -1) return Errno::last();
    if (count == 0) return false;
    ssize_t have = 0;
    while (have < count) {
      const ssize_t more =
          ::pread(right, other + have, static_cast<std::size_t>(count - have), at + have);
      if (more == -1) return Errno::last();
      if (more == 0) return false;
      have += more;
    }
    if (std::memcmp(buffer.get(), other, static_cast<std::size_t>(count)) != 0) return false;
    at += count;
  }
  return true;
}

}  // namespace cacheshim
