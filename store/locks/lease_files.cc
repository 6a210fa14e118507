// SPDX-License-Identifier: Apache-2.0
#include "store/locks/lease_files.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <string>

#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr std::size_t kMostRecordBytes = 64;
constexpr int kMostTries = 16;  // a try fails if another daemon releases the lease at the same time

// Whether the name still leads to the open file. A holder removes the name when it releases the
// lease.
bool is_named(int directory, const std::string& name, int file) {
  const auto named = sys::stat_at(directory, name);
  const auto opened = sys::stat_fd(file);
  return named && opened && named->st_dev == opened->st_dev && named->st_ino == opened->st_ino;
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
  const std::string name = lease_name(path);
  for (int tries = 0; tries < kMostTries; ++tries) {
    auto file = sys::open_beneath(directory_, name, O_RDWR | O_CREAT, 0600);
    if (!file) return UniqueFd();
    const Status locked = sys::lock_file(file->get(), LOCK_EX | LOCK_NB);
    if (locked.failed_with(EWOULDBLOCK)) return locked.error();
    if (!locked) return UniqueFd();
    if (is_named(directory_, name, file->get())) return *std::move(file);
  }
  return Errno(EWOULDBLOCK);
}

void LeaseFiles::release(std::string_view path, UniqueFd lease) const {
  if (!lease) return;
  (void)sys::unlink_at(directory_, lease_name(path));  // a leftover is an unlocked file, which sweep() removes
}

void LeaseFiles::note_builder(const UniqueFd& lease, uid_t uid) {
  if (!lease) return;
  const std::string text = fmt::format("{}\n", uid);
  // If a call fails, the other daemons do not know the builder's user, and their processes wait until
  // the timeout.
  if (::ftruncate(lease.get(), 0) == -1) return;
  (void)!::pwrite(lease.get(), text.data(), text.size(), 0);
}

std::optional<LeaseFiles::Builder> LeaseFiles::builder_of(std::string_view path) const {
  if (directory_ < 0) return std::nullopt;
  const auto file = sys::open_beneath(directory_, lease_name(path), O_RDONLY | O_NOFOLLOW);
  if (!file) return std::nullopt;
  const auto st = sys::stat_fd(file->get());
  const auto text = sys::read_all(file->get(), kMostRecordBytes);
  if (!st || !text) return std::nullopt;
  uid_t uid = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, uid);
  if (error != std::errc() || rest == end || *rest != '\n') return std::nullopt;
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
    if (is_named(directory_, file.name, held->get())) (void)sys::unlink_at(directory_, file.name);
  }
}

}  // namespace cacheshim
