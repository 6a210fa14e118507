// SPDX-License-Identifier: Apache-2.0
#include "fuse/jobs/run_directory.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "common/cuda_defaults.h"
#include "common/direct_page.h"
#include "common/names.h"
#include "fuse/jobs/name_rule_table.h"
#include "store/layer/closing_record.h"
#include "store/sys/file_system.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr std::size_t kMutexOffset = 128;
constexpr std::size_t kRulesOffset = 256;
static_assert(sizeof(MountPage) <= kMutexOffset);
static_assert(kMutexOffset + sizeof(pthread_mutex_t) <= kRulesOffset);

// Removes all bind mounts at `path`. Earlier daemons that died may have left several.
void unbind(const std::string& path) {
  while (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) continue;
}

Result<UniqueFd> make_directory(int dir, std::string_view name) {
  CACHESHIM_CHECK(sys::remove_tree(dir, std::string(name)));
  CACHESHIM_CHECK(sys::make_dir_at(dir, std::string(name), 0755));
  return sys::open_beneath(dir, name, O_RDONLY | O_DIRECTORY);
}

// Locks the mutex for the lifetime of the calling thread. However the thread exits, the kernel removes its id from the
// futex word (get_robust_list(2)), which the library reads.
Status hold_for_life(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  (void)::pthread_mutexattr_init(&attributes);  // the attribute calls cannot fail with these arguments
  (void)::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  (void)::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int made = ::pthread_mutex_init(mutex, &attributes);
  (void)::pthread_mutexattr_destroy(&attributes);
  if (made != 0) return Errno(made);
  if (const int locked = ::pthread_mutex_lock(mutex); locked != 0) return Errno(locked);
  return {};
}

}  // namespace

Result<dev_t> device_of_mount(const std::string& path) {
  struct statx st {};
  if (::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) ==
      -1) {
    return Errno::last();
  }
  return ::makedev(st.stx_dev_major, st.stx_dev_minor);
}

Result<RunDirectory> RunDirectory::make(const std::string& path, UniqueFd lock,
                                        const std::string& routes,
                                        const std::string& cuda_defaults) {
  RunDirectory directory;
  if (path.empty()) return directory;
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) return Errno(failed.value());
  CACHESHIM_TRY(fd, sys::open_path(path, O_RDONLY | O_DIRECTORY));
  CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
  CACHESHIM_TRY(parent, sys::open_path(path + "/..", O_PATH | O_DIRECTORY));
  CACHESHIM_TRY(above, sys::stat_fd(parent.get()));
  // Processes take their routes from here: no other user may be able to write the routes, or to replace the directory.
  if (st.st_uid != ::geteuid() || (st.st_mode & kOthersWrite) != 0) return Errno(EPERM);
  if (above.st_uid != ::geteuid() && above.st_uid != 0) return Errno(EPERM);
  if ((above.st_mode & kOthersWrite) != 0 && (above.st_mode & S_ISVTX) == 0) return Errno(EPERM);
  if (!lock) {
    CACHESHIM_TRY(own, sys::open_beneath(fd.get(), kRunLockFile, O_RDWR | O_CREAT, 0600));
    // A user who could open the lock file could lock it, and so keep a daemon from using the run directory.
    CACHESHIM_CHECK(sys::set_mode(own.get(), 0600));
    CACHESHIM_CHECK(sys::lock_file(own.get(), LOCK_EX | LOCK_NB));
    lock = std::move(own);
  }
  forget_closing(path);  // removes the record of the previous mount's closing
  directory.path_ = path;
  directory.directory_ = std::move(fd);
  directory.lock_ = std::move(lock);
  directory.withdraw();
  if (!routes.empty()) {
    const int dir = directory.directory_.get();
    CACHESHIM_CHECK(sys::replace_file(dir, std::string(kRoutesFile), routes, 0644));
    // Write the file even if it is empty, to replace the previous daemon's file.
    CACHESHIM_CHECK(sys::replace_file(dir, std::string(kCudaDefaultsFile), cuda_defaults, 0644));
  }
  return directory;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      directory_(std::move(other.directory_)),
      lock_(std::move(other.lock_)),
      base_device_(other.base_device_),
      is_base_local_(other.is_base_local_),
      base_inode_(other.base_inode_),
      direct_(std::move(other.direct_)),
      state_(std::move(other.state_)),
      alive_(std::exchange(other.alive_, nullptr)) {}

void RunDirectory::end_direct_opens() {
  if (alive_ != nullptr) (void)::pthread_mutex_unlock(std::exchange(alive_, nullptr));
}

// Removes the files for direct opens. Unmounts the base first, so that nothing below its mount is removed.
void RunDirectory::withdraw() {
  end_direct_opens();
  direct_.reset();
  unbind(base_path());
  (void)sys::unlink_at(directory_.get(), std::string(kBaseDirectory), AT_REMOVEDIR);
  for (const std::string_view name : {kStateFile, kViewsDirectory, kCountersDirectory}) {
    // If this fails, the library recognizes the leftover as stale.
    (void)sys::remove_tree(directory_.get(), std::string(name));
  }
}

RunDirectory::~RunDirectory() {
  if (!lock_) return;
  withdraw();
  const auto left = sys::list_dir(directory_.get());
  if (!left) return;
  for (const sys::DirEntry& entry : *left) {
    // If the bound base could not be unmounted, nothing below it may be removed.
    if (entry.name != kBaseDirectory) (void)sys::remove_tree(directory_.get(), entry.name);
  }
  (void)::rmdir(path_.c_str());  // a leftover is harmless: its lock is free
}

Status RunDirectory::offer_base(int base, const std::vector<Profile>& profiles) {
  if (!lock_) return {};
  CACHESHIM_TRY(st, sys::stat_fd(base));
  CACHESHIM_TRY(tree, sys::clone_read_only(base));
  CACHESHIM_CHECK(sys::make_dir_at(directory_.get(), std::string(kBaseDirectory), 0755));
  CACHESHIM_CHECK(sys::mount_clone(tree.get(), base_path()));
  base_device_ = st.st_dev;
  is_base_local_ = is_local_file_system(base);
  base_inode_ = st.st_ino;
  CACHESHIM_TRY(views, make_directory(directory_.get(), kViewsDirectory));
  CACHESHIM_TRY(counters, make_directory(directory_.get(), kCountersDirectory));
  direct_ = std::make_unique<DirectAccess>(std::move(views), std::move(counters), profiles);
  return {};
}

Status RunDirectory::announce(dev_t mount_device) {
  if (!direct_) return {};
  const std::string& rules = direct_->rules.bytes();
  const std::size_t size = kRulesOffset + rules.size();
  const std::string name(kStateFile);
  CACHESHIM_TRY(state, MappedFile::make(directory_.get(), name, size, 0644));
  char* const bytes = static_cast<char*>(state.data());
  auto* const mutex = static_cast<pthread_mutex_t*>(static_cast<void*>(bytes + kMutexOffset));
  CACHESHIM_CHECK(hold_for_life(mutex));
  alive_ = mutex;
  const auto* const word =
      static_cast<const char*>(static_cast<const void*>(&mutex->__data.__lock));
  const MountPage page{kMountPageMagic,
                       kMountPageVersion,
                       static_cast<std::uint32_t>(size),
                       kRulesOffset,
                       direct_->rules.family_count(),
                       static_cast<std::uint32_t>(word - bytes),
                       mount_device,
                       base_device_,
                       base_inode_,
                       is_base_local_ ? 1U : 0U,
                       0};
  std::memcpy(bytes, &page, sizeof page);
  direct_->changes.attach(&static_cast<MountPage*>(state.data())->base_changes);
  std::memcpy(bytes + kRulesOffset, rules.data(), rules.size());
  state_ = std::move(state);
  return state_.commit(directory_.get(), name);
}

}  // namespace cacheshim
