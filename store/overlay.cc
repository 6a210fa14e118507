// SPDX-License-Identifier: Apache-2.0
#include "store/overlay.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>

#include <unordered_set>
#include <utility>

#include "common/names.h"
#include "store/sys.h"
#include "store/whiteout.h"

// Looking: what is there, in which of the two layers, and what a folder lists.
namespace cacheshim {
namespace {

bool is_missing(const Errno& error) { return error == ENOENT || error == ENOTDIR; }

// The store's own records are no part of any view.
bool is_store_internal(std::string_view path) {
  return path.starts_with(kControlName) &&
         (path.size() == kControlName.size() || path[kControlName.size()] == '/');
}

}  // namespace

Overlay::Overlay(int base, const EntryMap& entries, Counters& counters, OverlayObserver* observer)
    : base_(base), entries_(entries), counters_(counters), observer_(observer) {}

void Overlay::set_layer(UniqueFd upper, UniqueFd work) {
  upper_ = std::move(upper);
  work_ = std::move(work);
  hidden_.clear();
}

Result<UniqueFd> Overlay::open_upper(const std::string& path, int flags) const {
  if (!upper_) return Errno(ENOENT);
  return sys::open_beneath(upper_.get(), path, flags | O_NOFOLLOW);
}

Result<Found> Overlay::find(const std::string& path) const {
  if (is_reserved_name(base_name(path))) return Errno(ENOENT);
  const Result<UniqueFd> upper = open_upper(path, O_PATH);
  if (upper) {
    CACHESHIM_TRY(st, sys::stat_fd(upper->get()));
    return Found{st, true};
  }
  if (!is_missing(upper.error())) return upper.error();
  CACHESHIM_TRY(st, find_in_base(path));
  return Found{st, false};
}

Result<struct stat> Overlay::find_in_base(const std::string& path) const {
  if (hidden_.hides(path) || is_store_internal(path)) return Errno(ENOENT);
  CACHESHIM_TRY(fd, sys::open_beneath(base_, path, O_PATH | O_NOFOLLOW));
  return sys::stat_fd(fd.get());
}

Result<Opened> Overlay::open(const std::string& path, int flags) const {
  if (is_reserved_name(base_name(path))) return Errno(ENOENT);
  // O_NONBLOCK: a FIFO that has taken the name must not stop the daemon.
  const int safe_flags = (flags & O_PATH) != 0 ? flags : flags | O_NONBLOCK;
  Result<UniqueFd> upper = open_upper(path, safe_flags);
  if (upper) return Opened{*std::move(upper), true};
  if (!is_missing(upper.error())) return upper.error();
  if (hidden_.hides(path) || is_store_internal(path)) return Errno(ENOENT);
  CACHESHIM_TRY(fd, sys::open_beneath(base_, path, safe_flags | O_NOFOLLOW));
  return Opened{std::move(fd), false};
}

Result<std::string> Overlay::read_link(const std::string& path) const {
  CACHESHIM_TRY(opened, open(path, O_PATH));
  return sys::read_link_at(opened.fd.get(), "");
}

Result<std::vector<ListedEntry>> Overlay::list(const std::string& path) const {
  std::vector<ListedEntry> listed;
  std::unordered_set<std::string> in_upper;
  const Result<UniqueFd> upper = open_upper(path, O_RDONLY | O_DIRECTORY);
  if (!upper && !is_missing(upper.error())) return upper.error();
  if (upper) {
    CACHESHIM_TRY(entries, sys::list_dir(upper->get()));
    for (sys::DirEntry& entry : entries) {
      if (is_reserved_name(entry.name)) continue;
      in_upper.insert(entry.name);
      listed.push_back({std::move(entry.name), entry.type, entry.ino});
    }
  }
  if (hidden_.hides(path) || hidden_.is_opaque(path) || is_store_internal(path)) {
    if (!upper) return Errno(ENOENT);
    return listed;
  }
  const Result<UniqueFd> base = sys::open_beneath(base_, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!base) {
    if (upper && is_missing(base.error())) return listed;
    return base.error();
  }
  CACHESHIM_TRY(entries, sys::list_dir(base->get()));
  for (sys::DirEntry& entry : entries) {
    const std::string child = join_path(path, entry.name);
    if (is_reserved_name(entry.name) || in_upper.contains(entry.name)) continue;
    if (hidden_.has_whiteout(child) || is_store_internal(child)) continue;
    listed.push_back({std::move(entry.name), entry.type, entry.ino});
  }
  return listed;
}

Status Overlay::load_hidden() { return load_hidden_below(upper_.get(), ""); }

Status Overlay::load_hidden_below(int folder, const std::string& path) {
  CACHESHIM_TRY(entries, sys::list_dir(folder));
  for (const sys::DirEntry& entry : entries) {
    if (entry.name == kOpaqueMarker) {
      hidden_.add_opaque(path);
    } else if (is_reserved_name(entry.name)) {
      hidden_.add_whiteout_marker(join_path(path, entry.name));
    } else if (entry.type == DT_DIR || entry.type == DT_UNKNOWN) {
      const Result<UniqueFd> child =
          sys::open_beneath(folder, entry.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (!child && is_missing(child.error())) continue;  // DT_UNKNOWN and no folder
      if (!child) return child.error();
      CACHESHIM_CHECK(load_hidden_below(child->get(), join_path(path, entry.name)));
    }
  }
  return {};
}

std::string Overlay::staged_name() {
  return fmt::format("staged.{}", staged_count_.fetch_add(1, std::memory_order_relaxed));
}

Status Overlay::check_name(const std::string& path) const {
  if (is_reserved_name(base_name(path))) return Errno(EPERM);
  if (is_store_internal(path)) return Errno(EPERM);
  return {};
}

Status Overlay::check_absent(const std::string& path) const {
  CACHESHIM_CHECK(check_name(path));
  const Result<Found> found = find(path);
  if (found) return Errno(EEXIST);
  if (!found.failed_with(ENOENT)) return found.error();
  return {};
}

}  // namespace cacheshim
