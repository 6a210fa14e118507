// SPDX-License-Identifier: Apache-2.0
#include "store/locks/heartbeats.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMostHeartbeatBytes = 64;

std::string file_of(const std::string& name) { return "alive-" + name; }

}  // namespace

Heartbeats::Heartbeats(int directory, std::string name, std::function<Clock::time_point()> now)
    : directory_(directory), name_(std::move(name)), now_(std::move(now)) {}

Heartbeats::~Heartbeats() {
  // If this fails, LeaseFiles::sweep() removes the file.
  if (file_) (void)sys::unlink_at(directory_, file_of(name_));
}

// Two machines may have the same name, and process ids are reused.
std::string Heartbeats::unique_name(const std::string& node) {
  std::random_device random;
  return fmt::format("{}-{}-{:08x}", node, ::getpid(), random());
}

Status Heartbeats::beat() {
  if (!file_) {
    CACHESHIM_TRY(file, sys::open_beneath(directory_, file_of(name_), O_RDWR | O_CREAT, 0600));
    // The lock prevents LeaseFiles::sweep() of other daemons from removing the file.
    const Status locked = sys::lock_file(file.get(), LOCK_EX | LOCK_NB);
    has_locks_ = !locked.failed_with(ENOLCK) && !locked.failed_with(ENOSYS) &&
                 !locked.failed_with(EOPNOTSUPP);
    file_ = std::move(file);
  }
  const std::string text = fmt::format("{:016x}\n", ++beats_);
  if (::pwrite(file_.get(), text.data(), text.size(), 0) == -1) return Errno::last();
  return sys::sync_file(file_.get());
}

// A missing file counts as empty. Opening the file makes an NFS client revalidate its cached pages.
std::string Heartbeats::content_of(const std::string& name) const {
  const auto file = sys::open_beneath(directory_, file_of(name), O_RDONLY | O_NOFOLLOW);
  const auto text = file ? sys::read_all(file->get(), kMostHeartbeatBytes) : file.error();
  return text ? *text : "";
}

bool Heartbeats::is_dead(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto now = now_();
  if (seen_.size() >= kMostSeen) seen_.clear();
  const auto [at, is_new] = seen_.try_emplace(name);
  Seen& seen = at->second;
  if (is_new || now - seen.read >= kRead) {
    std::string content = content_of(name);
    if (is_new || content != seen.content) seen = {std::move(content), now, now};
    seen.read = now;
  }
  return now - seen.changed >= kDeadAfter;
}

}  // namespace cacheshim
