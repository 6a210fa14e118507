// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/direct/direct.h"
#include "shim/direct/direct_descriptor.h"
#include "shim/direct/direct_directory.h"

#include <sys/sysmacros.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "common/names.h"
#include "common/open_to_all.h"
#include "common/used_names.h"
#include "shim/direct/path_marks.h"
#include "shim/routing/path_match.h"

namespace cacheshim::direct {
namespace {

// An attempt to answer one call from the base. Determines the path in the base, and checks whether
// the view would give the base's answer.
class Attempt {
 public:
  explicit Attempt(const char* rest, bool needs_path = false)
      : entry_errno_(errno), view_(current_view()) {
    if (view_ == nullptr) return;
    probes_.begin(view_->filter);
    rest_ = {rest, std::strlen(rest)};
    if (!take_path() || probes_.may_be_shadowed()) return;
    if (view_->filter.is_building() && is_awaited()) return;
    is_begun_ = true;
    errno = 0;
    directory_ = needs_path ? -1 : base_directory(*view_);
    path_ = rest;
    if (directory_ >= 0) return;
    directory_ = AT_FDCWD;
    path_ = buffer_.text;
    is_begun_ = join_path(buffer_, {{view_->base, view_->base_length}, "/", rest_}) != 0;
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  explicit operator bool() const { return is_begun_; }
  const View& view() const { return *view_; }
  // Returns the directory argument for the *at calls: a descriptor of the base's directory, or
  // AT_FDCWD if path() is absolute.
  int directory() const { return directory_; }
  const char* path() const { return path_; }

  // Call after the base has answered. Returns true if the view would give the same answer.
  bool is_still_valid() const {
    return view_->is_alive() && !probes_.may_be_shadowed() && is_for_base() && was_base();
  }
  // Call after a call on the base has failed. Returns true if the same call would fail in the same way in the view.
  bool is_failure_still_valid() const {
    return errno == ENOENT && view_->is_base_local && !is_awaited() && is_still_valid() &&
           is_of_base();
  }
  const ShadowProbes& probes() const { return probes_; }
  // The number of changes to the base so far; 0 if the daemon is not notified of all changes.
  std::uint64_t changes() const { return __atomic_load_n(view_->base_changes, __ATOMIC_ACQUIRE); }
  // Whether the application may get `fd`, which an open of the path has returned. `changes_before` is the result of
  // changes() before that open. Returns false for a directory. Also returns false if the file's access and modification
  // times are both older than kUseGrainSeconds: the mount then serves the open, and the daemon renews the access time.
  // The process checks these times at the first open of the path in each hour, and again after a change to the base. If
  // entries are directories, one recent time in an entry is enough for all files of the entry until the hour ends.
  bool may_return_file(int fd, std::uint64_t changes_before) const;
  // As may_return_file(), for a directory that the application will list. Returns true if `fd` is a directory of the
  // base that every user may read. The open has already checked this process's own permission.
  bool may_list(int fd, std::uint64_t changes_before) const;
  // Leaves the answer to the mount: restores errno and returns false.
  bool leave_to_mount() const {
    errno = entry_errno_;
    return false;
  }
  bool answer_lookup() const {
    view_->count_lookup();
    return answer();
  }
  bool answer() const {
    if (errno == 0) errno = entry_errno_;
    return true;
  }
  bool answer_open() const {
    view_->count_open();
    errno = entry_errno_;
    return true;
  }

 private:
  bool take_path();
  bool is_for_base() const;
  // Returns false if the base's path no longer leads to the base: after an unmount, or if another
  // mount covers it.
  bool is_of_base() const { return directory_ != AT_FDCWD || view_->is_base_in_sight(); }
  bool was_base() const { return directory_ == AT_FDCWD || is_held(directory_); }
  bool rules_allow() const;
  bool entries_are_directories() const;
  bool is_awaited() const;
  std::uint64_t opened_state(std::uint64_t changes, time_t now) const;

  const int entry_errno_;
  const View* const view_;
  ShadowProbes probes_;
  std::string_view rest_;
  bool is_begun_ = false;
  int directory_ = AT_FDCWD;
  const char* path_ = nullptr;
  PathBuffer buffer_;
};

bool is_plain_component(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  // is_reserved() needs no length: its comparison with ".wh." stops at the '/' or NUL that ends a shorter component.
  return !is_reserved(name.data());
}

// Calls visit(component) for each component of the path, until a call returns false. Returns
// whether all calls returned true.
template <class Visit>
bool each_component(std::string_view path, Visit visit) {
  const char* at = path.data();
  const char* const end = at + path.size();
  for (;;) {
    const auto* slash =
        static_cast<const char*>(std::memchr(at, '/', static_cast<std::size_t>(end - at)));
    const char* const stop = slash == nullptr ? end : slash;
    if (!visit(std::string_view(at, static_cast<std::size_t>(stop - at)))) return false;
    if (slash == nullptr) return true;
    at = slash + 1;
  }
}

alignas(64) constinit PathMarks marks;

// Computes the keys of the path. Returns false if only the mount can answer for this path, for
// example because it contains "..".
bool Attempt::take_path() {
  const auto take = [this](std::string_view name) {
    return is_plain_component(name) && probes_.descend(name);
  };
  // Only the mount shows the control directory. The base's directory of this name contains the store's records.
  const bool is_control = starts_with_directory(rest_, kControlName);
  if (is_control || !each_component(rest_, take) || !probes_.finish()) return false;
  marks.fetch(probes_.path());
  view_->fetch_counters();
  return true;
}

// Checks the marks first, because matching the profile's patterns takes longer than all other steps
// except the system call.
bool Attempt::is_for_base() const {
  const auto view = reinterpret_cast<std::uintptr_t>(view_);
  if (marks.has(PathMarks::kForBase, probes_.path(), view)) return true;
  if (!rules_allow()) return false;
  marks.set(PathMarks::kForBase, probes_.path(), view);
  return true;
}

bool Attempt::rules_allow() const {
  std::optional<FamilyRecord> family;
  bool is_first = true;
  return each_component(rest_, [&](std::string_view name) {
    if (!std::exchange(is_first, false)) {
      return !family || !view_->rules.any_applies(*family, NameRule::kMountOnly, name);
    }
    family = view_->rules.find(name);
    return true;
  });
}

bool Attempt::entries_are_directories() const {
  std::optional<FamilyRecord> family;
  (void)each_component(rest_, [&](std::string_view name) {
    family = view_->rules.find(name);
    return false;
  });
  return family && family->entries_are_directories != 0;
}

// Whether only the mount may report that the name does not exist, because another process may be
// building it or its entry.
bool Attempt::is_awaited() const {
  std::optional<FamilyRecord> family;
  bool is_first = true;
  return !each_component(rest_, [&](std::string_view name) {
    if (!std::exchange(is_first, false)) {
      return !family || !view_->rules.any_applies(*family, NameRule::kAwaited, name);
    }
    family = view_->rules.find(name);
    return true;
  });
}

// Returns true for a directory. The application must not get a directory of the base, because its
// listing lacks the layer's names. A read of 0 bytes is the fastest call that distinguishes a
// directory from a file.
bool is_directory(int fd) { return ::read(fd, nullptr, 0) != 0; }

// Returns the state with which a kOpened mark is set and checked (PathMarks). It combines three values:
// - the count of changes to the base;
// - the view, because each daemon counts from zero: equal counts in two views do not mean that nothing has changed;
// - the hour, so that the mark expires: the process then checks the access time of the file again.
std::uint64_t Attempt::opened_state(std::uint64_t changes, time_t now) const {
  const auto hour = static_cast<std::uint64_t>(now) / kUseCheckSeconds;
  return reinterpret_cast<std::uintptr_t>(view_) ^ changes * 0x9e3779b97f4a7c15 ^
         hour * 0xbf58476d1ce4e5b9;
}

bool Attempt::may_return_file(int fd, std::uint64_t changes_before) const {
  // Reads the count after the open, so that the count includes every replacement of the path before the open.
  const std::uint64_t counted = changes();
  const time_t now = ::time(nullptr);
  const bool was_opened = marks.has(PathMarks::kOpened, probes_.path(), opened_state(counted, now));
  if (was_opened && counted != 0) return true;
  const FilterKey entry = key_below(probes_.entry());  // a mark of this key means that the entry's use is recorded
  const std::uint64_t use = opened_state(0, now);
  bool is_recorded = true;
  if (was_opened || marks.has(PathMarks::kOpened, entry, use)) {
    if (is_directory(fd)) return false;
  } else {
    struct stat st;
    if (real::__fxstat(kStatVersion, fd, &st) != 0 || S_ISDIR(st.st_mode)) return false;
    if (view_->used_names != nullptr) mark_used(view_->used_names, rest_);
    is_recorded = std::max(st.st_atim.tv_sec, st.st_mtim.tv_sec) >= now - kUseGrainSeconds;
    if (is_recorded && entries_are_directories()) marks.set(PathMarks::kOpened, entry, use);
  }
  // Uses the count from before the open: a change that was counted since then may have replaced the
  // file with a directory.
  marks.set(PathMarks::kOpened, probes_.path(), opened_state(changes_before, now));
  return is_recorded;
}

bool Attempt::may_list(int fd, std::uint64_t changes_before) const {
  const std::uint64_t counted = changes();
  const time_t now = ::time(nullptr);
  const auto listed_state = [&](std::uint64_t count) { return ~opened_state(count, now); };
  if (counted != 0 && marks.has(PathMarks::kOpened, probes_.path(), listed_state(counted))) {
    return true;
  }
  struct stat st;
  if (real::__fxstat(kStatVersion, fd, &st) != 0 || st.st_dev != view_->base_device ||
      !is_open_to_all(st.st_mode)) {
    return false;
  }
  marks.set(PathMarks::kOpened, probes_.path(), listed_state(changes_before));
  return true;
}

int stat_at(const Attempt& attempt, int flags, struct stat* out) {
  return real::__fxstatat(kStatVersion, attempt.directory(), attempt.path(), out, flags);
}

constexpr unsigned kShownByMount = STATX_BASIC_STATS;
constexpr unsigned kRefusedByKernel = 0x80000000;  // the bit STATX__RESERVED

}  // namespace

bool try_open(const char* rest, int flags, int& result) {
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave_to_mount();
  const std::uint64_t changes = attempt.changes();
  const int fd = real::openat(attempt.directory(), attempt.path(), flags);
  if (fd < 0) {
    if (!attempt.is_failure_still_valid()) return attempt.leave_to_mount();
    result = fd;
    return attempt.answer_lookup();
  }
  if (!attempt.may_return_file(fd, changes) || !attempt.is_still_valid()) {
    (void)real::close(fd);
    return attempt.leave_to_mount();
  }
  note_descriptor(fd);
  result = fd;
  return attempt.answer_open();
}

// Opens the directory by its path, not relative to base_directory(): a relative open would require fdopendir(3), whose
// additional system call takes longer than a path walk from the root.
bool try_open_directory(const char* rest, OpenedDirectory& result) {
  // A listing contains "..". In a cache's own directory, ".." is the view's root, whose inode
  // number only the mount knows.
  if (std::strchr(rest, '/') == nullptr) return false;
  const Attempt attempt(rest, /*needs_path=*/true);
  if (!attempt || !attempt.view().is_base_local) return attempt.leave_to_mount();
  const std::uint64_t changes = attempt.changes();
  DIR* const stream = real::opendir(attempt.path());
  if (stream == nullptr)
    return attempt.is_failure_still_valid() ? attempt.answer_lookup() : attempt.leave_to_mount();
  const int fd = real::dirfd(stream);
  if (!attempt.may_list(fd, changes) || !attempt.is_still_valid()) {
    (void)real::closedir(stream);
    return attempt.leave_to_mount();
  }
  result = {stream, fd, &attempt.view(), attempt.probes()};
  return attempt.answer();
}

bool try_fopen(const char* rest, const char* mode, FILE*& result) {
  if (std::strchr(mode, '+') != nullptr || std::strchr(mode, ',') != nullptr) return false;
  const Attempt attempt(rest, /*needs_path=*/true);
  if (!attempt) return attempt.leave_to_mount();
  const std::uint64_t changes = attempt.changes();
  FILE* const file = real::fopen(attempt.path(), mode);
  if (file == nullptr) {
    if (!attempt.is_failure_still_valid()) return attempt.leave_to_mount();
    result = nullptr;
    return attempt.answer_lookup();
  }
  const int fd = ::fileno(file);
  if (!attempt.may_return_file(fd, changes) || !attempt.is_still_valid()) {
    (void)::fclose(file);
    return attempt.leave_to_mount();
  }
  note_descriptor(fd);
  result = file;
  return attempt.answer_open();
}

bool try_stat(const char* rest, int flags, struct stat* out, int& result) {
  if ((flags & ~AT_SYMLINK_NOFOLLOW) != 0) return false;
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave_to_mount();
  result = stat_at(attempt, flags, out);
  if (result != 0)
    return attempt.is_failure_still_valid() ? attempt.answer_lookup() : attempt.leave_to_mount();
  if (out->st_dev != attempt.view().base_device || !is_open_to_all(out->st_mode) ||
      !attempt.is_still_valid()) {
    return attempt.leave_to_mount();
  }
  show_as_view(attempt.view(), *out);
  return attempt.answer_lookup();
}

bool try_statx(const char* rest, int flags, unsigned mask, struct statx* out, int& result) {
  if ((flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)) != 0) return false;
  if ((mask & kRefusedByKernel) != 0) return false;
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave_to_mount();
  result = real::statx(attempt.directory(), attempt.path(), flags, mask & kShownByMount, out);
  if (result != 0)
    return attempt.is_failure_still_valid() ? attempt.answer_lookup() : attempt.leave_to_mount();
  const auto device = ::gnu_dev_makedev(out->stx_dev_major, out->stx_dev_minor);
  if (device != attempt.view().base_device || (out->stx_mask & STATX_MODE) == 0 ||
      !is_open_to_all(out->stx_mode) || !attempt.is_still_valid()) {
    return attempt.leave_to_mount();
  }
  show_as_view(attempt.view(), *out);
  return attempt.answer_lookup();
}

// Answers F_OK, R_OK and, for directories, X_OK, and only if every user has the permission in the base: the caller then
// also has it in the view. All other results depend on the view's owner.
bool try_access(const char* rest, int mode, int flags, int& result) {
  constexpr int kMostRights = R_OK | X_OK;
  if ((mode & ~kMostRights) != 0 || (flags & ~(AT_EACCESS | AT_SYMLINK_NOFOLLOW)) != 0)
    return false;
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave_to_mount();
  struct stat found;
  result = stat_at(attempt, flags & AT_SYMLINK_NOFOLLOW, &found);
  if (result != 0)
    return attempt.is_failure_still_valid() ? attempt.answer_lookup() : attempt.leave_to_mount();
  if (!is_open_to_all(found.st_mode) || !attempt.is_still_valid()) return attempt.leave_to_mount();
  if ((mode & X_OK) != 0 && !S_ISDIR(found.st_mode)) return attempt.leave_to_mount();
  return attempt.answer_lookup();
}

bool try_readlink(const char* rest, char* out, std::size_t capacity, ssize_t& result) {
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave_to_mount();
  result = ::readlinkat(attempt.directory(), attempt.path(), out, capacity);
  if (result >= 0)
    return attempt.is_still_valid() ? attempt.answer_lookup() : attempt.leave_to_mount();
  const bool is_no_link = errno == EINVAL && capacity > 0 && attempt.is_still_valid();
  return is_no_link || attempt.is_failure_still_valid() ? attempt.answer_lookup()
                                                        : attempt.leave_to_mount();
}

bool has_name(const char* rest) {
  const Attempt attempt(rest);
  if (!attempt) return attempt.leave_to_mount();
  struct stat found;
  if (stat_at(attempt, AT_SYMLINK_NOFOLLOW, &found) != 0 || !attempt.is_still_valid()) {
    return attempt.leave_to_mount();
  }
  return attempt.answer_lookup();
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
