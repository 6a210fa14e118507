// SPDX-License-Identifier: Apache-2.0
#include "store/base/store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>

#include "common/job_id.h"
#include "common/names.h"
#include "store/base/store_format.h"
#include "store/locks/lease_files.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr mode_t kPrivateMode = 0700;
constexpr const char* kLockFile = "owner.lock";
constexpr const char* kBaseLock = "gc.lock";
constexpr const char* kSweepLock = "sweep.lock";
constexpr unsigned kMostAttempts = 1024;

Result<UniqueFd> ensure_dir(int parent, const std::string& name, mode_t mode) {
  CACHESHIM_CHECK(sys::ensure_dir_at(parent, name, mode));
  return sys::open_beneath(parent, name, O_RDONLY | O_DIRECTORY);
}

// Returns the uid that a file system gives to the daemon's new objects. It differs from the
// daemon's uid if a file server maps that uid (root_squash). Returns the daemon's uid if the daemon
// cannot create anything there.
uid_t uid_given_by(int directory) {
  const std::string name = fmt::format("{}.probe-{}", kControlName, ::getpid());
  if (!sys::make_dir_at(directory, name, kPrivateMode)) return sys::own_uid();
  const auto st = sys::stat_at(directory, name);
  // If this fails, the name of the remaining directory shows its purpose.
  (void)sys::unlink_at(directory, name, AT_REMOVEDIR);
  return st ? st->st_uid : sys::own_uid();
}

// Returns the reason why the directory that `st` describes must not contain records; "" if there is none. `parent`: a
// directory on the same file system.
std::string why_unsafe(int parent, const struct stat& st) {
  if (sys::is_private_dir(st, sys::own_uid())) return "";
  const bool is_strange = st.st_uid != 0 && st.st_uid != sys::own_uid();
  if (is_strange && st.st_uid != uid_given_by(parent)) {
    return fmt::format("belongs to uid {}, which is neither root nor the service account",
                       st.st_uid);
  }
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) == 0) return "";
  return fmt::format("can be written by others (mode {:04o})", st.st_mode & 07777U);
}

// Returns a name for this boot of the machine. It distinguishes machines with the same host name.
std::string boot_name() {
  const auto file = sys::open_path("/proc/sys/kernel/random/boot_id", O_RDONLY);
  const auto text = file ? sys::read_all(file->get()) : file.error();
  return text ? text->substr(0, 8) : "0";
}

}  // namespace

std::string node_name() {
  char name[HOST_NAME_MAX + 1] = "";
  if (::gethostname(name, sizeof name - 1) == -1 || name[0] == '\0') return "localhost";
  return std::string(JobId::from_text(name).view());
}

std::variant<Store, StoreError> Store::open(const std::string& path,
                                            const std::string& layers_path) {
  Store store;
  const Status opened = [&]() -> Status {
    CACHESHIM_TRY(base, sys::open_path(path, O_RDONLY | O_DIRECTORY));
    store.base_ = std::move(base);
    return store.make_records(layers_path);
  }();
  if (!opened) return store.explain(path, opened.error());
  return store;
}

Store Store::bare(UniqueFd base) {
  Store store;
  store.base_ = std::move(base);
  return store;
}

StoreError Store::explain(const std::string& path, Errno error) const {
  if (!refusal_.empty())
    return {fmt::format("store '{}': {}; nothing was mounted", path, refusal_)};
  return {fmt::format("cannot use store '{}': {}; nothing was mounted", path,
                      std::strerror(error.code()))};
}

// Opens a directory of the store's records; creates it if it is missing. Errors: EPERM, with a
// reason in `refusal_`, if other users can change it: they could give a job another job's layer, or
// files that were never published.
Result<UniqueFd> Store::open_record_dir(int parent, const std::string& name,
                                        const std::string& shown) {
  auto directory = ensure_dir(parent, name, kPrivateMode);
  if (directory.failed_with(ELOOP) || directory.failed_with(ENOTDIR)) {
    refusal_ = fmt::format("'{}' is {}", shown,
                           directory.failed_with(ELOOP) ? "a symlink" : "not a directory");
  }
  if (!directory) return directory.error();
  CACHESHIM_TRY(st, sys::stat_fd(directory->get()));
  const std::string why = why_unsafe(parent, st);
  if (why.empty()) return directory;
  refusal_ = fmt::format("'{}' {}", shown, why);
  return Errno(EPERM);
}

Status Store::make_records(const std::string& layers_path) {
  const std::string control_name(kControlName);
  CACHESHIM_TRY(control, open_record_dir(base_.get(), control_name, control_name));
  control_ = std::move(control);
  CACHESHIM_CHECK(read_format());
  const auto open_own = [&](const char* name) {
    return open_record_dir(control_.get(), name, join_path(control_name, name));
  };
  if (layers_path.empty()) {
    CACHESHIM_TRY(layers, open_own("layers"));
    layers_ = std::move(layers);
  } else {
    CACHESHIM_TRY(layers, sys::open_path(layers_path, O_RDONLY | O_DIRECTORY));
    CACHESHIM_TRY(st, sys::stat_fd(layers.get()));
    if (const std::string why = why_unsafe(layers.get(), st); !why.empty()) {
      refusal_ = fmt::format("the directory of layers '{}' {}", layers_path, why);
      return Errno(EPERM);
    }
    layers_ = std::move(layers);
  }
  CACHESHIM_TRY(trash, open_own("trash"));
  trash_ = std::move(trash);
  CACHESHIM_TRY(audit, open_own("audit"));
  audit_ = AuditLog(std::move(audit), node_name(), fmt::format("{}-{}", node_name(), boot_name()));
  CACHESHIM_TRY(leases, open_own("leases"));
  leases_ = std::move(leases);
  return open_staging();
}

Status Store::read_format() {
  const auto text = sys::read_file(control_.get(), kStoreFormatFile);
  if (text.failed_with(ENOENT)) return record_mount_path("");
  if (!text) return text.error();
  const auto format = parse_store_format(*text);
  if (const auto* refusal = std::get_if<std::string>(&format)) {
    refusal_ = *refusal;
    return Errno(EINVAL);
  }
  mount_path_ = std::get<StoreFormat>(format).mount_path;
  return {};
}

Status Store::record_mount_path(const std::string& path) {
  std::string text = fmt::format("{}\n", kStoreFormat);
  if (!path.empty()) text += fmt::format("mount {}\n", path);
  // Several daemons may mount a new store at the same time, so each needs its own suffix.
  static std::atomic<unsigned> next{0};
  const std::string suffix = fmt::format(".new-{}-{}-{}", node_name(), ::getpid(), next++);
  CACHESHIM_CHECK(sys::replace_file(control_.get(), kStoreFormatFile, text, 0644, suffix));
  mount_path_ = path;
  return {};
}

Result<UniqueFd> Store::try_lock_base() const {
  CACHESHIM_TRY(lock, sys::open_beneath(control_.get(), kBaseLock, O_RDWR | O_CREAT, 0600));
  CACHESHIM_CHECK(sys::lock_file(lock.get(), LOCK_EX | LOCK_NB));
  return lock;
}

// If the lock file is not empty, its mtime is the time of the last eviction round. Taking the lock alone creates an empty
// file.
void Store::note_eviction(const UniqueFd& lock) {
  (void)!::pwrite(lock.get(), "1\n", 2, 0);  // after a failure, another daemon repeats the round
}

bool Store::has_evicted_within(std::chrono::seconds interval) const {
  const auto file = sys::open_beneath(control_.get(), kBaseLock, O_RDONLY);
  if (!file) return false;
  (void)sys::revalidate_attributes(file->get());
  const auto st = sys::stat_fd(file->get());
  return st && st->st_size > 0 && std::time(nullptr) - st->st_mtime < interval.count();
}

// Creates and locks this daemon's staging directory under an unused name. Tries several numbers,
// because daemons in different containers may have equal host names and pids.
Status Store::open_staging() {
  CACHESHIM_TRY(all, open_record_dir(control_.get(), "staging",
                                     join_path(kControlName, "staging")));
  sweep(all.get());
  for (unsigned number = 0; number < kMostAttempts; ++number) {
    const std::string own = fmt::format("{}-{}-{}", node_name(), ::getpid(), number);
    const Status made = sys::make_dir_at(all.get(), own, kPrivateMode);
    if (made.failed_with(EEXIST)) continue;
    CACHESHIM_CHECK(made);
    // Until this daemon holds the lock, a daemon that starts at the same time may remove the directory (sweep()), and
    // another one may make a directory of the same name.
    auto directory = sys::open_beneath(all.get(), own, O_RDONLY | O_DIRECTORY);
    if (directory.failed_with(ENOENT)) continue;
    if (!directory) return directory.error();
    auto lock = sys::open_beneath(directory->get(), kLockFile, O_RDWR | O_CREAT, 0600);
    if (lock.failed_with(ENOENT)) continue;
    if (!lock) return lock.error();
    if (sys::lock_file(lock->get(), LOCK_EX | LOCK_NB).failed_with(EWOULDBLOCK)) continue;
    if (!sys::still_names(directory->get(), kLockFile, lock->get())) continue;
    staging_ = *std::move(directory);
    staging_lock_ = *std::move(lock);
    return {};
  }
  return Errno(EUSERS);
}

// Removes the files of dead daemons, whose locks are free, and records whether other daemons live. Only one daemon
// sweeps at a time, because a sweep tries the locks of all daemons, and a thousand machines may mount the store at the
// same time. A daemon that cannot sweep now assumes that each directory in staging belongs to a living daemon.
void Store::sweep(int all) {
  const auto daemons = sys::list_dir(all);
  if (!daemons) return;
  const auto sweeping = sys::open_beneath(control_.get(), kSweepLock, O_RDWR | O_CREAT, 0600);
  if (!sweeping || !sys::lock_file(sweeping->get(), LOCK_EX | LOCK_NB)) {
    has_other_daemons_ = !daemons->empty();
    return;
  }
  LeaseFiles(leases_.get()).sweep();
  for (const sys::DirEntry& daemon : *daemons) {
    // A daemon that has just made its directory does not hold its lock yet. If the sweep gets the lock first, it
    // removes the directory, and that daemon makes another one (open_staging()).
    const auto lock = sys::open_beneath(all, join_path(daemon.name, kLockFile), O_RDWR | O_CREAT, 0600);
    if (!lock) continue;
    if (!sys::lock_file(lock->get(), LOCK_EX | LOCK_NB)) {
      has_other_daemons_ = true;
      continue;
    }
    (void)sys::remove_tree(all, daemon.name);  // after a failure, the next mount tries again
  }
}

bool Store::is_writable() const { return ::faccessat(base_.get(), ".", W_OK, AT_EACCESS) == 0; }

Status Store::ensure_base_dir(const std::string& name) const {
  return sys::ensure_dir_at(base_.get(), name, 0755);
}

}  // namespace cacheshim
