// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/direct.h"
#include "shim/direct_descriptor.h"
#include "shim/direct_folder.h"

#include <sys/sysmacros.h>
#include <time.h>

#include <algorithm>

#include "common/names.h"

namespace cacheshim::direct {
namespace {

constexpr std::string_view kReservedPrefix = ".wh.";

// One answer: which name of the base it is, and whether it counts.
class Attempt {
 public:
  explicit Attempt(const char* rest, bool needs_path = false)
      : entry_errno_(errno), view_(current_view()) {
    if (view_ == nullptr) return;
    probes_.begin(view_->filter);
    const std::size_t length = std::strlen(rest);
    if (!take_path({rest, length}) || probes_.may_be_shadowed()) return;
    is_begun_ = true;
    errno = 0;
    folder_ = needs_path ? -1 : base_folder(*view_);
    path_ = rest;
    if (folder_ >= 0) return;
    folder_ = AT_FDCWD;
    path_ = buffer_.text;
    is_begun_ = join_path(buffer_, {{view_->base, view_->base_length}, "/", {rest, length}}) != 0;
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  explicit operator bool() const { return is_begun_; }
  const View& view() const { return *view_; }
  // Where the base has it, for the ...at calls.
  int folder() const { return folder_; }
  const char* path() const { return path_; }

  // To be asked when the base has been asked: whether its answer counts.
  bool stands() const { return view_->is_alive() && !probes_.may_be_shadowed(); }
  // The same, after a failure.
  bool failure_stands() const { return errno == ENOENT && !is_awaited_ && stands(); }
  // Whether the application may have this descriptor of it: not a folder's, nor, the first time that a process
  // opens the path, that of a file which the daemon has to be told of that it is used.
  bool may_have(int fd) const;
  // The mount is to answer.
  bool leave() const {
    errno = entry_errno_;
    return false;
  }
  bool answer_look() const {
    view_->count_look();
    if (errno == 0) errno = entry_errno_;
    return true;
  }
  bool answer_open() const {
    view_->count_open();
    errno = entry_errno_;
    return true;
  }

 private:
  bool take_path(std::string_view path);

  const int entry_errno_;
  const View* const view_;
  ShadowProbes probes_;
  bool is_begun_ = false;
  bool is_awaited_ = false;
  int folder_ = AT_FDCWD;
  const char* path_ = nullptr;
  PathBuffer buffer_;
};

bool is_plain_component(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  return name.size() < kReservedPrefix.size() ||
         std::memcmp(name.data(), kReservedPrefix.data(), kReservedPrefix.size()) != 0;
}

// The path below the view: its keys, and whether the rules let it be asked for here.
bool Attempt::take_path(std::string_view path) {
  const FamilyRecord* family = nullptr;
  const char* at = path.data();
  const char* const end = at + path.size();
  for (bool is_first = true;; is_first = false) {
    const auto* slash =
        static_cast<const char*>(std::memchr(at, '/', static_cast<std::size_t>(end - at)));
    const char* const stop = slash == nullptr ? end : slash;
    const std::string_view name(at, static_cast<std::size_t>(stop - at));
    if (!is_plain_component(name) || !probes_.descend(name)) return false;
    if (is_first) {
      if (name == kControlName) return false;  // the store's own records
      family = view_->rules.find(name);
    } else if (family != nullptr && view_->rules.any_applies(*family, NameRule::kMountOnly, name)) {
      return false;
    }
    if (slash == nullptr) {
      is_awaited_ = family != nullptr && !is_first &&
                    view_->rules.any_applies(*family, NameRule::kAwaited, name);
      return probes_.finish();
    }
    at = slash + 1;
  }
}

// Which paths have been opened as files, and how far the base had changed then: a mark of both, in a slot
// by the path's key. The two hold 45 bits of it, so that no two paths are taken for one.
constexpr std::size_t kOpenedSlots = 16384;
constinit std::atomic<std::uint32_t> opened[kOpenedSlots] = {};

// A folder is not to be opened here: what is in it would be the base's alone. Nothing is read by this,
// and it is the cheapest call that knows.
bool is_folder(int fd) { return ::read(fd, nullptr, 0) != 0; }

bool Attempt::may_have(int fd) const {
  // Read when the path has been opened: what it was replaced by before is counted.
  const std::uint64_t changes = __atomic_load_n(view_->base_changes, __ATOMIC_ACQUIRE);
  std::atomic<std::uint32_t>& slot = opened[probes_.path() % kOpenedSlots];
  const auto mark = static_cast<std::uint32_t>((probes_.path() >> 32) + changes * 0x9e3779b9) | 1;
  if (slot.load(std::memory_order_relaxed) == mark) return changes != 0 || !is_folder(fd);
  struct stat st;
  if (real::__fxstat(kStatVersion, fd, &st) != 0 || S_ISDIR(st.st_mode)) return false;
  slot.store(mark, std::memory_order_relaxed);
  return std::max(st.st_atim.tv_sec, st.st_mtim.tv_sec) >= ::time(nullptr) - kUseGrainSeconds;
}

// Whether the view shows it as its user's, whoever that is; and what others might not see alike.
bool is_open_to_all(mode_t mode) {
  if (S_ISLNK(mode)) return true;
  if (S_ISDIR(mode)) return (mode & 0555) == 0555;
  return S_ISREG(mode) && (mode & 0444) == 0444;
}

int stat_at(const Attempt& attempt, int flags, struct stat* out) {
  return real::__fxstatat(kStatVersion, attempt.folder(), attempt.path(), out, flags);
}

constexpr unsigned kShownByMount = STATX_BASIC_STATS;

}  // namespace

bool try_open(const char* rest, int flags, int& result) {
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave();
  const int fd = real::openat(attempt.folder(), attempt.path(), flags);
  if (fd < 0) {
    if (!attempt.failure_stands()) return attempt.leave();
    result = fd;
    return attempt.answer_look();
  }
  if (!attempt.may_have(fd) || !attempt.stands()) {
    (void)real::close(fd);
    return attempt.leave();
  }
  note_descriptor(fd);
  result = fd;
  return attempt.answer_open();
}

bool try_fopen(const char* rest, const char* mode, FILE*& result) {
  if (std::strchr(mode, '+') != nullptr || std::strchr(mode, ',') != nullptr) return false;
  const Attempt attempt(rest, /*needs_path=*/true);
  if (!attempt) return attempt.leave();
  FILE* const file = real::fopen(attempt.path(), mode);
  if (file == nullptr) {
    if (!attempt.failure_stands()) return attempt.leave();
    result = nullptr;
    return attempt.answer_look();
  }
  const int fd = ::fileno(file);
  if (!attempt.may_have(fd) || !attempt.stands()) {
    (void)::fclose(file);
    return attempt.leave();
  }
  note_descriptor(fd);
  result = file;
  return attempt.answer_open();
}

bool try_stat(const char* rest, int flags, struct stat* out, int& result) {
  if ((flags & ~AT_SYMLINK_NOFOLLOW) != 0) return false;
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave();
  result = stat_at(attempt, flags, out);
  if (result != 0) return attempt.failure_stands() ? attempt.answer_look() : attempt.leave();
  if (out->st_dev != attempt.view().base_device || !is_open_to_all(out->st_mode) ||
      !attempt.stands()) {
    return attempt.leave();
  }
  show_as_view(attempt.view(), *out);
  return attempt.answer_look();
}

bool try_statx(const char* rest, int flags, unsigned mask, struct statx* out, int& result) {
  if ((flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)) != 0) return false;
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave();
  result = real::statx(attempt.folder(), attempt.path(), flags, mask & kShownByMount, out);
  if (result != 0) return attempt.failure_stands() ? attempt.answer_look() : attempt.leave();
  const auto device = ::gnu_dev_makedev(out->stx_dev_major, out->stx_dev_minor);
  if (device != attempt.view().base_device || (out->stx_mask & STATX_MODE) == 0 ||
      !is_open_to_all(out->stx_mode) || !attempt.stands()) {
    return attempt.leave();
  }
  show_as_view(attempt.view(), *out);
  return attempt.answer_look();
}

// Who may read it may do so here as there; for other rights the view's owner counts.
bool try_access(const char* rest, int mode, int flags, int& result) {
  if ((mode & ~R_OK) != 0 || (flags & ~(AT_EACCESS | AT_SYMLINK_NOFOLLOW)) != 0) return false;
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave();
  struct stat found;
  result = stat_at(attempt, flags & AT_SYMLINK_NOFOLLOW, &found);
  if (result != 0) return attempt.failure_stands() ? attempt.answer_look() : attempt.leave();
  if (!is_open_to_all(found.st_mode) || !attempt.stands()) return attempt.leave();
  return attempt.answer_look();
}

bool try_readlink(const char* rest, char* out, std::size_t capacity, ssize_t& result) {
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave();
  result = ::readlinkat(attempt.folder(), attempt.path(), out, capacity);
  if (result >= 0) return attempt.stands() ? attempt.answer_look() : attempt.leave();
  const bool is_no_link = errno == EINVAL && capacity > 0 && attempt.stands();
  return is_no_link || attempt.failure_stands() ? attempt.answer_look() : attempt.leave();
}

bool try_mkdir(const char* rest, int& result) {
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave();
  struct stat found;
  if (stat_at(attempt, AT_SYMLINK_NOFOLLOW, &found) != 0 || !attempt.stands()) {
    return attempt.leave();
  }
  errno = EEXIST;
  result = -1;
  return attempt.answer_look();
}

void show_as_view(const View& view, struct stat& st) {
  st.st_dev = view.device;
  st.st_uid = view.uid;
  st.st_gid = view.gid;
  st.st_mode &= ~static_cast<mode_t>(S_ISVTX);
  if (S_ISDIR(st.st_mode)) st.st_nlink = 1;
}

void show_as_view(const View& view, struct statx& st) {
  st.stx_dev_major = ::gnu_dev_major(view.device);
  st.stx_dev_minor = ::gnu_dev_minor(view.device);
  st.stx_uid = view.uid;
  st.stx_gid = view.gid;
  st.stx_mode = static_cast<std::uint16_t>(st.stx_mode & ~S_ISVTX);
  if (S_ISDIR(st.stx_mode)) st.stx_nlink = 1;
  st.stx_mask &= kShownByMount;
  st.stx_attributes = 0;
  st.stx_attributes_mask = 0;
  st.stx_btime = {};
  st.stx_mnt_id = 0;
}

}  // namespace cacheshim::direct
