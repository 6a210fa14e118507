// SPDX-License-Identifier: Apache-2.0
#include "store/locks/lease_files.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <string>
#include <utility>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMostRecordBytes = 512;
constexpr int kMostLeaseTries =
    16;  // a try fails if another daemon releases the lease at the same time

// A daemon holds the lease of this name while it frees a dead daemon's lease. This prevents the following race:
// 1. Daemons A and B find that the name of a lease leads to a dead daemon's file.
// 2. A removes that file and takes the lease, which creates a new file of the same name.
// 3. B removes the name, and thereby A's new file.
constexpr std::string_view kTakeover = "takeover";

// The content of a lease's file. Older versions wrote only the first line.
struct Record {
  std::string builder;  // the builder's user; "" if the daemon has not recorded it yet
  std::string daemon;
};

Record read_record(int file) {
  const auto text = sys::read_all(file, kMostRecordBytes);
  if (!text) return {};
  const std::size_t first = std::min(text->find('\n'), text->size());
  const std::size_t second = std::min(text->find('\n', first + 1), text->size());
  if (first == text->size()) return {};
  return {text->substr(0, first), text->substr(first + 1, second - first - 1)};
}

// Takes every kind of lock that a holder may have on the file: flock(2) for a lease, and a record lock, which a job may
// have on a baton (NamedLockFiles). Returns false if another process has one of them.
bool lock_completely(int file) {
  struct flock all {};
  all.l_type = F_WRLCK;
  return sys::lock_file(file, LOCK_EX | LOCK_NB) && ::fcntl(file, F_OFD_SETLK, &all) == 0;
}

}  // namespace

std::string lease_name(std::string_view path) {
  const XXH128_hash_t hash = XXH3_128bits(path.data(), path.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Result<UniqueFd> LeaseFiles::try_take(std::string_view path) const {
  if (directory_ < 0) return UniqueFd();
  return take(lease_name(path));
}

Result<UniqueFd> LeaseFiles::take(const std::string& name) const {
  for (int tries = 0; tries < kMostLeaseTries; ++tries) {
    auto taken = options_.has_locks ? take_by_lock(name) : take_by_name(name);
    if (!taken.failed_with(ESTALE)) return taken;
  }
  return Errno(EWOULDBLOCK);
}

// Errors: EWOULDBLOCK; ESTALE if the caller should try again, because another daemon has released the lease since the
// file was opened, or because this function has freed the lease from a dead daemon.
Result<UniqueFd> LeaseFiles::take_by_lock(const std::string& name) const {
  auto file = sys::open_beneath(directory_, name, O_RDWR | O_CREAT, 0600);
  if (!file) return UniqueFd();
  const Status locked = sys::lock_file(file->get(), LOCK_EX | LOCK_NB);
  if (locked.failed_with(EWOULDBLOCK))
    return Errno(free_from_dead(name, file->get()) ? ESTALE : EWOULDBLOCK);
  if (!locked) return UniqueFd();
  if (!sys::still_names(directory_, name, file->get()))
    return Errno(ESTALE);  // its holder has removed it
  // If a dead daemon has left the file, the file still names that daemon.
  if (const auto left = sys::stat_fd(file->get()); left && left->st_size > 0)
    (void)!::ftruncate(file->get(), 0);
  return *std::move(file);
}

// For a shared file system without flock(2): the daemon that creates the file has the lease. The daemon writes the
// content, which names this daemon, before it gives the file its name. Errors: as for take_by_lock().
Result<UniqueFd> LeaseFiles::take_by_name(const std::string& name) const {
  static std::atomic<std::uint64_t> next{0};
  const std::string staged = fmt::format("new-{}-{}", options_.heartbeats->name(), next++);
  auto file = sys::open_beneath(directory_, staged, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (!file) return UniqueFd();
  write_record(file->get(), "");
  const Status named = sys::link_at(directory_, staged, directory_, name);
  (void)sys::unlink_at(directory_, staged);  // a leftover has no effect
  if (named) return *std::move(file);
  if (!named.failed_with(EEXIST)) return UniqueFd();
  const auto held = sys::open_beneath(directory_, name, O_RDONLY | O_NOFOLLOW);
  if (held.failed_with(ENOENT)) return Errno(ESTALE);
  if (!held) return UniqueFd();
  return Errno(free_from_dead(name, held->get()) ? ESTALE : EWOULDBLOCK);
}

// Removes the name of the open file if the daemon that the file names is dead. If the dead daemon still has a lock on
// the file, this lock then no longer counts (sys::still_names()). Returns false if the daemon may be alive, or if the
// lease `takeover` is not free.
bool LeaseFiles::free_from_dead(const std::string& name, int file) const {
  if (options_.heartbeats == nullptr) return false;
  const Record record = read_record(file);
  if (record.daemon.empty() || !options_.heartbeats->is_dead(record.daemon)) return false;
  const auto unname = [&] {
    if (sys::still_names(directory_, name, file)) (void)sys::unlink_at(directory_, name);
  };
  const std::string takeover(kTakeover);
  if (name == takeover) {
    unname();
    return true;
  }
  auto alone = take(takeover);
  if (!alone || !*alone) return false;
  unname();
  release_name(takeover, *std::move(alone));
  return true;
}

void LeaseFiles::release(std::string_view path, UniqueFd lease) const {
  if (lease) release_name(lease_name(path), std::move(lease));
}

// After a takeover, the name leads to another daemon's file, which must stay.
void LeaseFiles::release_name(const std::string& name, UniqueFd lease) const {
  if (sys::still_names(directory_, name, lease.get()))
    (void)sys::unlink_at(directory_, name);  // a leftover is an unlocked file, which sweep() removes
}

// If a system call fails, other daemons cannot read the builder's user or this daemon's name. The processes of those
// daemons' jobs then wait until the timeout.
void LeaseFiles::write_record(int file, const std::string& builder) const {
  const bool is_shared = options_.heartbeats != nullptr;
  const std::string text =
      is_shared ? fmt::format("{}\n{}\n", builder, options_.heartbeats->name()) : builder + "\n";
  if (::ftruncate(file, 0) == -1) return;
  (void)!::pwrite(file, text.data(), text.size(), 0);
  if (is_shared) (void)sys::sync_file(file);  // other machines see only what is on the server
}

void LeaseFiles::note_builder(const UniqueFd& lease, uid_t uid) const {
  if (lease) write_record(lease.get(), fmt::to_string(uid));
}

std::optional<LeaseFiles::Builder> LeaseFiles::builder_of(std::string_view path) const {
  if (directory_ < 0) return std::nullopt;
  const auto file = sys::open_beneath(directory_, lease_name(path), O_RDONLY | O_NOFOLLOW);
  if (!file) return std::nullopt;
  const auto st = sys::stat_fd(file->get());
  if (!st) return std::nullopt;
  const std::string text = read_record(file->get()).builder;
  uid_t uid = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, uid);
  if (error != std::errc() || rest != end) return std::nullopt;
  const std::time_t age = std::max<std::time_t>(std::time(nullptr) - st->st_mtime, 0);
  return Builder{uid, std::chrono::seconds(age)};
}

// Another process may have opened a file before this function removes it. That process locks the file, finds that the
// name now leads to another file or to none, and tries again.
void LeaseFiles::sweep() const {
  const auto files = sys::list_dir(directory_);
  if (!files) return;
  for (const sys::DirEntry& file : *files) {
    const auto held = sys::open_beneath(directory_, file.name, O_RDWR | O_NOFOLLOW);
    if (!held || !lock_completely(held->get())) continue;
    if (sys::still_names(directory_, file.name, held->get()))
      (void)sys::unlink_at(directory_, file.name);
  }
}

}  // namespace cacheshim
