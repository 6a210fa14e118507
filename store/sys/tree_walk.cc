// SPDX-License-Identifier: Apache-2.0
#include "store/sys/tree_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "store/sys/paths.h"

namespace cacheshim {
namespace {

constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

bool is_gone(const Errno& error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ESTALE;
}

class Walk {
 public:
  Walk(int root, std::string top, const VisitDirectory& visit)
      : root_(root), path_(std::move(top)), visit_(visit) {}

  Status run() {
    CACHESHIM_TRY(top, sys::open_beneath(root_, path_, kFlags));
    CACHESHIM_CHECK(enter(std::move(top)));
    while (!levels_.empty()) {
      if (levels_.back().further.empty()) {
        leave();
        continue;
      }
      const std::string name = std::move(levels_.back().further.back());
      levels_.back().further.pop_back();
      auto next = sys::open_beneath(levels_.back().fd.get(), name, kFlags);
      if (!next) {
        record_error(next.error());
        continue;
      }
      path_ = join_path(path_, name);
      CACHESHIM_CHECK(enter(*std::move(next)));
    }
    return first_error_;
  }

 private:
  struct Level {
    UniqueFd fd;  // open only in the last kMostOpen levels
    dev_t device = 0;
    ino_t inode = 0;
    std::size_t parent_bytes = 0;  // the length of the parent's path
    std::vector<std::string> further;
  };

  // Visits the directory whose path is `path_`.
  Status enter(UniqueFd fd) {
    Level level;
    level.fd = std::move(fd);
    level.parent_bytes = levels_.empty() ? 0 : parent_path(path_).size();
    const auto st = sys::stat_fd(level.fd.get());
    const auto entries = sys::read_dir(level.fd.get());
    if (!st) record_error(st.error());
    if (!entries) record_error(entries.error());
    if (st && entries) {
      level.device = st->st_dev;
      level.inode = st->st_ino;
      CACHESHIM_CHECK(visit_({level.fd.get(), path_, *entries, level.further}));
    }
    levels_.push_back(std::move(level));
    if (levels_.size() > kMostOpen) levels_[levels_.size() - 1 - kMostOpen].fd.reset();
    return {};
  }

  // Returns to the parent. If the parent's descriptor was closed, opens the parent again by "..". If another process
  // has moved the directory in the meantime, opens the parent by its path instead. If this path leads elsewhere, skips
  // the rest of the parent.
  void leave() {
    const Level left = std::move(levels_.back());
    levels_.pop_back();
    path_.resize(left.parent_bytes);
    if (levels_.empty() || levels_.back().fd) return;
    Level& parent = levels_.back();
    parent.fd = UniqueFd(::openat(left.fd.get(), "..", kFlags | O_CLOEXEC));
    const auto st = parent.fd ? sys::stat_fd(parent.fd.get()) : Errno::last();
    const bool is_same = st && st->st_dev == parent.device && st->st_ino == parent.inode;
    if (!is_same) parent.fd = open_again();
    if (!parent.fd) parent.further.clear();
  }

  UniqueFd open_again() {
    const Level& wanted = levels_.back();
    auto opened = sys::open_beneath(root_, path_, kFlags);
    const auto st = opened ? sys::stat_fd(opened->get()) : opened.error();
    const bool is_same = st && st->st_dev == wanted.device && st->st_ino == wanted.inode;
    return is_same ? *std::move(opened) : UniqueFd();
  }

  void record_error(const Errno& error) {
    if (first_error_ && !is_gone(error)) first_error_ = error;
  }

  const int root_;
  std::string path_;
  const VisitDirectory& visit_;
  std::vector<Level> levels_;
  Status first_error_;
};

}  // namespace

Status walk_tree(int root, const std::string& top, const VisitDirectory& visit) {
  return Walk(root, top, visit).run();
}

bool is_directory(int directory, const sys::DirEntry& entry) {
  if (entry.type != DT_UNKNOWN) return entry.type == DT_DIR;
  const auto st = sys::stat_at(directory, entry.name);
  return st && S_ISDIR(st->st_mode);
}

}  // namespace cacheshim
