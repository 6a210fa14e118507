// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "store/base/base_watch_modes.h"
#include "store/base/fanotify_events.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"

// Marks the whole file system of each watched directory (Linux 5.9). An event identifies the changed
// directory by a file handle, which the daemon opens to get the directory's path. Most events come
// from a few directories, which are usually outside the watched ones. So the daemon caches the paths for
// each handle, until a directory moves.
namespace cacheshim {
namespace {

constexpr std::uint64_t kMarkEvents = FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO |
                                      FAN_ATTRIB | FAN_CLOSE_WRITE | FAN_ONDIR;
constexpr std::uint64_t kMoves = FAN_MOVED_FROM | FAN_MOVED_TO;
constexpr std::uint64_t kNameEvents = FAN_CREATE | FAN_DELETE | kMoves;
constexpr std::size_t kMostDirectories =
    65536;  // the maximum number of directories whose paths are cached

// Returns the path of an open object according to /proc/self/fd; "" if it cannot be read.
std::string path_of(int fd) {
  auto target = sys::read_link_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(fd));
  return target ? *std::move(target) : std::string();
}

// Returns the part of `path` below `root`; nothing if `path` is outside `root`.
std::optional<std::string> below(const std::string& root, const std::string& path) {
  if (path == root) return "";
  const std::string prefix = root == "/" ? root : root + "/";
  if (!path.starts_with(prefix)) return std::nullopt;
  return path.substr(prefix.size());
}

// A mount, and the watched directories on it. Handles of its file system are opened through `fd`.
struct WatchedMount {
  UniqueFd fd;  // of the first directory; open_by_handle_at(2) does not accept an O_PATH descriptor
  std::uint64_t id = 0;
  fsid_t file_system{};
  std::vector<int> directories;
};

// Returns nothing if the directory cannot be opened, or its mount cannot be determined.
std::optional<WatchedMount> mount_of(int directory) {
  auto fd = sys::open_beneath(directory, "", O_RDONLY | O_DIRECTORY);
  struct statfs file_system {};
  struct statx found {};
  if (!fd || ::fstatfs(fd->get(), &file_system) == -1) return std::nullopt;
  if (::statx(fd->get(), "", AT_EMPTY_PATH, STATX_MNT_ID, &found) == -1) return std::nullopt;
  return WatchedMount{*std::move(fd), found.stx_mnt_id, file_system.f_fsid, {directory}};
}

class FanotifyWatch final : public BaseWatch {
 public:
  FanotifyWatch(EventLoop& loop, UniqueFd group, std::vector<WatchedMount> mounts,
                Callback changed)
      : group_(std::move(group)),
        mounts_(std::move(mounts)),
        changed_(std::move(changed)),
        reader_(loop, group_.get(), [this] { read_events(); }) {}

  WatchMode mode() const override { return WatchMode::kFanotify; }
  bool ensure(const std::string&) override { return true; }

 private:
  void read_events();
  void take(const fanotify_event_metadata& event, std::vector<BaseChange>& changes);
  // Returns the paths of an event's directory: one for each watched directory that contains it,
  // relative to that watched directory. The reference is valid until the next call.
  using Paths = std::vector<std::string>;
  const Paths& paths_of(const fanotify_event_info_fid& info, const file_handle& handle);
  Paths resolve(const fanotify_event_info_fid& info, const file_handle& handle) const;

  const UniqueFd group_;
  const std::vector<WatchedMount> mounts_;
  const Callback changed_;
  std::unordered_map<std::string, Paths> directories_;  // the key: the file system and the handle
  EventReader reader_;  // the last member: it uses all the others
};

void FanotifyWatch::read_events() {
  char buffer[64 * 1024];
  std::vector<BaseChange> changes;
  const ssize_t size = ::read(group_.get(), buffer, sizeof buffer);
  if (size <= 0) return;  // EAGAIN: there are no events
  for_each_event({buffer, static_cast<std::size_t>(size)},
                 [&](const fanotify_event_metadata& event) { take(event, changes); });
  if (!changes.empty()) changed_(changes);
}

void FanotifyWatch::take(const fanotify_event_metadata& event, std::vector<BaseChange>& changes) {
  if ((event.mask & FAN_Q_OVERFLOW) != 0) {
    directories_.clear();
    changes.push_back({BaseChange::Kind::kUnknown, {}, {}});
    return;
  }
  if (event.pid == ::getpid()) return;
  const auto* info = reinterpret_cast<const fanotify_event_info_fid*>(&event + 1);
  if (event.event_len < sizeof event + sizeof *info) return;
  const auto& handle = *reinterpret_cast<const file_handle*>(info->handle);
  std::string name;
  if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME) {
    name = reinterpret_cast<const char*>(handle.f_handle + handle.handle_bytes);
  }
  if (name == ".") name.clear();
  const bool moved = (event.mask & FAN_ONDIR) != 0 && (event.mask & kMoves) != 0;
  const Paths& directories = paths_of(*info, handle);
  for (const std::string& directory : directories) {
    if ((event.mask & kNameEvents) != 0) {
      const auto kind = moved ? BaseChange::Kind::kDirectoryName : BaseChange::Kind::kName;
      add_change(changes, {kind, directory, name});
    }
    // The kernel merges events of one object, so one event may report both its creation and a
    // write.
    if ((event.mask & ~(kNameEvents | FAN_ONDIR)) != 0) {
      add_change(changes, {BaseChange::Kind::kContent, directory, name});
    }
  }
  // If a directory was moved within, into or out of a watched directory, the cached paths of the
  // moved directory and of those below it are wrong. The paths of this event are still right.
  if (moved && !directories.empty()) directories_.clear();
}

const FanotifyWatch::Paths& FanotifyWatch::paths_of(const fanotify_event_info_fid& info,
                                                    const file_handle& handle) {
  std::string key(reinterpret_cast<const char*>(&info.fsid), sizeof info.fsid);
  key.append(reinterpret_cast<const char*>(&handle), sizeof handle + handle.handle_bytes);
  if (const auto known = directories_.find(key); known != directories_.end()) return known->second;
  if (directories_.size() >= kMostDirectories) directories_.clear();
  return directories_[key] = resolve(info, handle);
}

// Returns no paths for a directory outside the watched ones, nor for a removed directory, because an event in its
// parent reports the removal. Compares the file systems first, because handles of different file systems may be equal.
FanotifyWatch::Paths FanotifyWatch::resolve(const fanotify_event_info_fid& info,
                                            const file_handle& handle) const {
  Paths paths;
  // open_by_handle_at(2) only reads the handle
  file_handle* const given = const_cast<file_handle*>(&handle);
  for (const WatchedMount& mount : mounts_) {
    if (std::memcmp(&mount.file_system, &info.fsid, sizeof info.fsid) != 0) continue;
    const UniqueFd opened(::open_by_handle_at(mount.fd.get(), given, O_PATH | O_CLOEXEC));
    if (!opened) continue;
    const std::string path = path_of(opened.get());
    for (const int directory : mount.directories) {
      if (auto found = below(path_of(directory), path)) paths.push_back(*std::move(found));
    }
  }
  return paths;
}

// Returns an empty list if one of the directories cannot be watched.
std::vector<WatchedMount> mounts_of(const std::vector<int>& directories) {
  std::vector<WatchedMount> mounts;
  for (const int directory : directories) {
    auto mount = mount_of(directory);
    if (!mount) return {};
    const auto same = [&](const WatchedMount& other) { return other.id == mount->id; };
    const auto known = std::find_if(mounts.begin(), mounts.end(), same);
    if (known == mounts.end()) {
      mounts.push_back(*std::move(mount));
    } else {
      known->directories.push_back(directory);
    }
  }
  return mounts;
}

}  // namespace

std::unique_ptr<BaseWatch> start_fanotify(EventLoop& loop, const std::vector<int>& directories,
                                          const BaseWatch::Callback& changed) {
  std::vector<WatchedMount> mounts = mounts_of(directories);
  UniqueFd group(::fanotify_init(
      FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_DFID_NAME, O_RDONLY));
  if (mounts.empty() || !group) return nullptr;
  for (const WatchedMount& mount : mounts) {
    if (::fanotify_mark(group.get(), FAN_MARK_ADD | FAN_MARK_FILESYSTEM, kMarkEvents,
                        mount.fd.get(), nullptr) == -1) {
      return nullptr;
    }
  }
  return std::make_unique<FanotifyWatch>(loop, std::move(group), std::move(mounts), changed);
}

}  // namespace cacheshim
