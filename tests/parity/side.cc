// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/side.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace cacheshim::parity {
namespace {

// Times that a test sets are earlier than this; times from the clock are later.
constexpr time_t kFirstClockTime = 1'700'000'000;

std::string errno_name(int code) {
  const char* name = ::strerrorname_np(code);
  return name != nullptr ? name : std::to_string(code);
}

std::string owner(uid_t uid, gid_t gid) {
  if (uid == ::geteuid() && gid == ::getegid()) return "own";
  return std::to_string(uid) + ":" + std::to_string(gid);
}

std::string time_text(const timespec& time) {
  if (time.tv_sec >= kFirstClockTime) return "now";
  char text[48];
  (void)std::snprintf(text, sizeof text, "%lld.%09ld", static_cast<long long>(time.tv_sec),
                      time.tv_nsec);
  return text;
}

std::string describe(const struct stat& st) {
  const char* type = S_ISREG(st.st_mode)    ? "file"
                     : S_ISDIR(st.st_mode)  ? "directory"
                     : S_ISLNK(st.st_mode)  ? "link"
                     : S_ISFIFO(st.st_mode) ? "fifo"
                     : S_ISSOCK(st.st_mode) ? "socket"
                                            : "other";
  char text[160];
  (void)std::snprintf(text, sizeof text, "%s %04o %s", type,
                      static_cast<unsigned>(st.st_mode & 07777),
                      owner(st.st_uid, st.st_gid).c_str());
  std::string all = text;
  if (!S_ISDIR(st.st_mode)) {
    all += " nlink=" + std::to_string(st.st_nlink) + " size=" + std::to_string(st.st_size);
  }
  return all + " mtime=" + time_text(st.st_mtim);
}

std::string read_all(int fd) {
  std::string all;
  std::array<char, 65536> piece;
  for (;;) {
    const ssize_t count = ::pread(fd, piece.data(), piece.size(), static_cast<off_t>(all.size()));
    if (count < 0) return all + "<" + errno_name(errno) + ">";
    if (count == 0) return all;
    all.append(piece.data(), static_cast<std::size_t>(count));
  }
}

// Reads the names in a directory, sorted by bytes. On failure, returns false and sets errno.
bool read_names(int fd, std::vector<std::string>& names) {
  struct Closer {
    void operator()(DIR* dir) const { (void)::closedir(dir); }
  };
  const std::unique_ptr<DIR, Closer> dir(::fdopendir(fd));
  if (!dir) return false;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    names.emplace_back(entry->d_name);
    errno = 0;
  }
  std::sort(names.begin(), names.end());
  return errno == 0;
}

}  // namespace

Side::Side(std::string path)
    : path_(std::move(path)), dir_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!dir_) note("cannot open the case's directory: " + errno_name(errno));
}

void Record::record_result(const std::string& what, long long result, bool is_fd) {
  const int code = errno;
  std::string text = what + " = ";
  if (result == -1) {
    text += errno_name(code);
  } else {
    text += is_fd ? "ok" : std::to_string(result);
  }
  lines_.push_back(std::move(text));
  errno = code;
}

UniqueFd Side::open(const std::string& name, int flags, mode_t mode) {
  return opened("open(" + name + ", " + flag_names(flags) + ")",
                ::openat(dir(), name.c_str(), flags | O_CLOEXEC, mode));
}

void Side::write(int fd, std::string_view data) {
  did("write(" + fingerprint(data) + ")", ::write(fd, data.data(), data.size()));
}

void Side::pwrite(int fd, std::string_view data, off_t offset) {
  did("pwrite(" + fingerprint(data) + ", at " + std::to_string(offset) + ")",
      ::pwrite(fd, data.data(), data.size(), offset));
}

void Side::contents(int fd) { note("contents: " + fingerprint(read_all(fd))); }

void Side::contents(const std::string& name) {
  if (const UniqueFd fd = open(name, O_RDONLY | O_NONBLOCK)) contents(fd.get());
}

void Side::stat(const std::string& name) {
  struct stat st {};
  if (did("lstat(" + name + ")", ::fstatat(dir(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW)) == 0) {
    note("  " + describe(st));
  }
}

void Side::fstat(int fd, std::string_view what) {
  struct stat st {};
  if (did("fstat(" + std::string(what) + ")", ::fstat(fd, &st)) == 0) note("  " + describe(st));
}

void Side::list(const std::string& name) {
  UniqueFd fd = open(name, O_RDONLY | O_DIRECTORY);
  if (!fd) return;
  std::vector<std::string> names;
  const bool good = read_names(fd.release(), names);
  std::string text = "names:";
  for (const std::string& one : names) text += " " + one;
  note(good ? text : text + " then " + errno_name(errno));
}

void Side::tree() { tree_below(dir(), ".", ""); }

void Side::tree_below(int parent, const std::string& name, const std::string& shown) {
  UniqueFd fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return note("  " + shown + " cannot be opened: " + errno_name(errno));
  std::vector<std::string> names;
  if (!read_names(::dup(fd.get()), names)) {
    note("  " + shown + " cannot be listed: " + errno_name(errno));
  }
  for (const std::string& one : names) {
    if (one == "." || one == "..") continue;
    const std::string path = shown.empty() ? one : shown + "/" + one;
    struct stat st {};
    if (::fstatat(fd.get(), one.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      note("  " + path + " is listed, but lstat says " + errno_name(errno));
      continue;
    }
    std::string text = "  " + path + ": " + describe(st);
    if (S_ISREG(st.st_mode)) {
      const UniqueFd file(::openat(fd.get(), one.c_str(), O_RDONLY | O_CLOEXEC));
      text += " " + (file ? fingerprint(read_all(file.get())) : errno_name(errno));
    } else if (S_ISLNK(st.st_mode)) {
      std::array<char, 4096> target;
      const ssize_t length = ::readlinkat(fd.get(), one.c_str(), target.data(), target.size());
      text += " -> " + (length < 0 ? errno_name(errno)
                                   : std::string(target.data(), static_cast<std::size_t>(length)));
    }
    note(text);
    if (S_ISDIR(st.st_mode)) tree_below(fd.get(), one, path);
  }
}

void Side::xattrs(const std::string& name) {
  const std::string path = path_of(name);
  std::array<char, 4096> list;
  const ssize_t size =
      did("llistxattr(" + name + ")", ::llistxattr(path.c_str(), list.data(), list.size()));
  std::vector<std::string> all;
  for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(all.back().size()) + 1) {
    all.emplace_back(list.data() + at);
  }
  std::sort(all.begin(), all.end());
  for (const std::string& one : all) {
    std::array<char, 4096> value;
    const ssize_t length = did("lgetxattr(" + name + ", " + one + ")",
                               ::lgetxattr(path.c_str(), one.c_str(), value.data(), value.size()));
    if (length >= 0) note("  " + std::string(value.data(), static_cast<std::size_t>(length)));
  }
}

std::string flag_names(int flags) {
  static constexpr struct {
    int bit;
    const char* name;
  } kNames[] = {{O_CREAT, "O_CREAT"},
                {O_EXCL, "O_EXCL"},
                {O_TRUNC, "O_TRUNC"},
                {O_APPEND, "O_APPEND"},
                {O_PATH, "O_PATH"},
                {O_NOFOLLOW, "O_NOFOLLOW"},
                {O_DIRECTORY, "O_DIRECTORY"},
                {O_SYNC, "O_SYNC"},
                {O_NONBLOCK, "O_NONBLOCK"},
                {O_DIRECT, "O_DIRECT"},
                {O_NOATIME, "O_NOATIME"},
                {O_TMPFILE & ~O_DIRECTORY, "O_TMPFILE"}};
  const int access = flags & O_ACCMODE;
  std::string text = access == O_RDONLY ? "O_RDONLY" : access == O_WRONLY ? "O_WRONLY" : "O_RDWR";
  for (const auto& flag : kNames) {
    if ((flags & flag.bit) == flag.bit) text += std::string("|") + flag.name;
  }
  return text;
}

std::string pattern(std::string_view seed, std::size_t size) {
  std::string text;
  text.reserve(size + seed.size() + 16);
  for (unsigned number = 0; text.size() < size; ++number) {
    text += seed;
    text += ' ';
    text += std::to_string(number);
    text += '\n';
  }
  text.resize(size);
  return text;
}

std::string fingerprint(std::string_view bytes) {
  unsigned long long hash = 14695981039346656037ULL;  // FNV-1a
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  }
  char text[64];
  (void)std::snprintf(text, sizeof text, "%zu bytes #%08llx", bytes.size(), hash >> 32);
  return text;
}

}  // namespace cacheshim::parity
