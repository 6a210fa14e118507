// SPDX-License-Identifier: Apache-2.0
#include "remote/engines/file_tier_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim::remote::file_tier {
namespace {

constexpr std::size_t kMostStartBytes = 2048;  // more than every object's header, and every lease

// Adds the mode bits that the umask has removed. This fails for an object of another user, whose process adds the bits
// itself.
void ensure_mode(int fd, mode_t mode) {
  const auto st = sys::stat_fd(fd);
  if (st && (st->st_mode & mode) != mode) (void)sys::set_mode(fd, (st->st_mode & 07777) | mode);
}

}  // namespace

Result<UniqueFd> find(int dir, const std::string& name, int flags) {
  auto found = sys::open_beneath(dir, name, flags);
  if (!found.failed_with(ENOENT)) return found;
  CACHESHIM_CHECK(sys::revalidate_attributes(dir));
  return sys::open_beneath(dir, name, flags);
}

Result<UniqueFd> open_dirs(const Root& root, std::initializer_list<std::string> names,
                           Missing missing) {
  UniqueFd last;
  for (const std::string& name : names) {
    const int parent = last ? last.get() : root.fd.get();
    auto next = find(parent, name, kDirectory);
    if (next.failed_with(ENOENT) && missing == Missing::kCreate) {
      CACHESHIM_CHECK(sys::ensure_dir_at(parent, name, root.mode));
      next = find(parent, name, kDirectory);
      if (next) ensure_mode(next->get(), root.mode);
    }
    if (!next) return next.error();
    last = *std::move(next);
  }
  return last;
}

Result<std::vector<std::string>> names_in(int dir) {
  CACHESHIM_CHECK(sys::revalidate_attributes(dir));
  CACHESHIM_TRY(entries, sys::list_dir(dir));
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (sys::DirEntry& entry : entries) names.push_back(std::move(entry.name));
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> read_start(int fd) {
  std::string bytes(kMostStartBytes, '\0');
  const ssize_t count = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (count == -1) return Errno::last();
  bytes.resize(static_cast<std::size_t>(count));
  return bytes;
}

ServerTime time_of(const timespec& time) {
  constexpr time_t kMost = 9'000'000'000;  // seconds; in nanoseconds, they still fit into 64 bits
  return std::chrono::seconds(std::clamp<time_t>(time.tv_sec, 0, kMost)) +
         std::chrono::nanoseconds(time.tv_nsec);
}

Status touch(int fd) {
  constexpr timespec kNow{0, UTIME_NOW};
  const timespec times[2] = {kNow, kNow};
  return sys::set_times(fd, times);
}

Result<ServerTime> modified_at(int fd) {
  CACHESHIM_CHECK(sys::revalidate_attributes(fd));
  CACHESHIM_TRY(st, sys::stat_fd(fd));
  return time_of(st.st_mtim);
}

Result<ServerTime> touch_and_read_time(int fd) {
  CACHESHIM_CHECK(touch(fd));
  return modified_at(fd);
}

Staged::~Staged() {
  file_.reset();  // first, because an NFS client renames an open file instead of removing it
  if (!name_.empty()) (void)sys::unlink_at(tmp_, name_);  // remove_old_files() removes a leftover
}

Status Staged::write(mode_t mode, std::string_view header, std::string_view body) {
  char host[65] = {};
  (void)::gethostname(host, sizeof host - 1);
  std::random_device random;
  name_ = fmt::format("{}.{}.{:08x}{:08x}", host, ::getpid(), random(), random());
  auto file = sys::open_beneath(tmp_, name_, O_RDWR | O_CREAT | O_EXCL, mode & 0666);
  if (!file) {
    name_.clear();
    return file.error();
  }
  file_ = *std::move(file);
  ensure_mode(file_.get(), mode & 0666);
  CACHESHIM_CHECK(sys::write_all(file_.get(), header));
  CACHESHIM_CHECK(sys::write_all(file_.get(), body));
  return sys::sync_file(file_.get());
}

Status Staged::link_to(int dir, const std::string& name) const {
  const Status linked = sys::link_at(tmp_, name_, dir, name);
  if (linked.failed_with(EEXIST) && sys::still_names(dir, name, file_.get())) return {};
  return linked;
}

}  // namespace cacheshim::remote::file_tier
