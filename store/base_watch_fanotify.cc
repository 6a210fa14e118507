// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <unordered_map>

#include "store/base_watch_modes.h"
#include "store/paths.h"
#include "store/sys.h"

// One mark on the whole file system of the base (Linux 5.9). An event names the folder by a file
// handle, which is opened to learn its path; since most events come from a few folders, and most of
// these lie outside the base, what a handle led to is remembered until a folder moves.
namespace cacheshim {
namespace {

constexpr std::uint64_t kEvents = FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO |
                                  FAN_ATTRIB | FAN_CLOSE_WRITE | FAN_ONDIR;
constexpr std::uint64_t kMoves = FAN_MOVED_FROM | FAN_MOVED_TO;
constexpr std::uint64_t kNames = FAN_CREATE | FAN_DELETE | kMoves;
constexpr std::size_t kMostRemembered = 65536;  // folders

// The path of an open object as the kernel tells it; "" where it has none any more.
std::string path_of(int fd) {
  auto target = sys::read_link_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(fd));
  return target ? *std::move(target) : std::string();
}

class FanotifyWatch final : public BaseWatch {
 public:
  FanotifyWatch(int base, UniqueFd group, UniqueFd mount, Callback changed)
      : base_(base),
        group_(std::move(group)),
        mount_(std::move(mount)),
        changed_(std::move(changed)),
        thread_(group_.get(), [this] { read_events(); }) {}

  WatchMode mode() const override { return WatchMode::kFanotify; }
  bool ensure(const std::string&) override { return true; }

 private:
  void read_events();
  void take(const fanotify_event_metadata& event, std::vector<BaseChange>& changes);
  std::optional<std::string> folder_of(const fanotify_event_info_fid& info,
                                       const file_handle& handle);
  std::optional<std::string> resolve(const file_handle& handle) const;

  const int base_;
  const UniqueFd group_;
  const UniqueFd mount_;  // of the base, not O_PATH: what open_by_handle_at(2) wants
  const Callback changed_;
  std::unordered_map<std::string, std::optional<std::string>> folders_;  // by handle
  EventThread thread_;  // the last: it uses all the others
};

void FanotifyWatch::read_events() {
  alignas(fanotify_event_metadata) char buffer[64 * 1024];
  std::vector<BaseChange> changes;
  for (;;) {
    const ssize_t size = ::read(group_.get(), buffer, sizeof buffer);
    if (size <= 0) break;  // EAGAIN: that was all
    const char* const end = buffer + size;
    for (const char* at = buffer; at < end;) {  // the kernel keeps each event aligned
      const void* const aligned = at;
      const auto& event = *static_cast<const fanotify_event_metadata*>(aligned);
      take(event, changes);
      at += event.event_len;
    }
  }
  if (!changes.empty()) changed_(changes);
}

void FanotifyWatch::take(const fanotify_event_metadata& event, std::vector<BaseChange>& changes) {
  if ((event.mask & FAN_Q_OVERFLOW) != 0) {
    folders_.clear();
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
  const auto folder = folder_of(*info, handle);
  if (!folder) return;
  const bool moved = (event.mask & FAN_ONDIR) != 0 && (event.mask & kMoves) != 0;
  // What moved within the base, into it or out of it, has other paths now. It is not the folder that
  // the event names, whose path was still right.
  if (moved) folders_.clear();
  if ((event.mask & kNames) != 0) {
    changes.push_back(
        {moved ? BaseChange::Kind::kFolderName : BaseChange::Kind::kName, *folder, name});
  }
  // Events of one object are merged: it may have been made and written to.
  if ((event.mask & ~(kNames | FAN_ONDIR)) != 0) {
    changes.push_back({BaseChange::Kind::kContent, *folder, name});
  }
}

std::optional<std::string> FanotifyWatch::folder_of(const fanotify_event_info_fid& info,
                                                    const file_handle& handle) {
  std::string key(reinterpret_cast<const char*>(&info.fsid), sizeof info.fsid);
  key.append(reinterpret_cast<const char*>(&handle), sizeof handle + handle.handle_bytes);
  if (const auto known = folders_.find(key); known != folders_.end()) return known->second;
  if (folders_.size() >= kMostRemembered) folders_.clear();
  return folders_[key] = resolve(handle);
}

// Nothing for a folder outside of the base, or one that is gone: its parent's event tells of that.
std::optional<std::string> FanotifyWatch::resolve(const file_handle& handle) const {
  file_handle* const given = const_cast<file_handle*>(&handle);  // it is only read
  const UniqueFd folder(::open_by_handle_at(mount_.get(), given, O_PATH | O_CLOEXEC));
  if (!folder) return std::nullopt;
  const std::string root = path_of(base_);
  std::string path = path_of(folder.get());
  if (path == root) return "";
  const std::string below = root == "/" ? root : root + "/";
  if (!path.starts_with(below)) return std::nullopt;
  return path.substr(below.size());
}

}  // namespace

std::unique_ptr<BaseWatch> start_fanotify(int base, const BaseWatch::Callback& changed) {
  auto mount = sys::open_beneath(base, "", O_RDONLY | O_DIRECTORY);
  if (!mount) return nullptr;
  UniqueFd group(::fanotify_init(
      FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_DFID_NAME, O_RDONLY));
  if (!group) return nullptr;
  if (::fanotify_mark(group.get(), FAN_MARK_ADD | FAN_MARK_FILESYSTEM, kEvents, mount->get(),
                      nullptr) == -1) {
    return nullptr;
  }
  return std::make_unique<FanotifyWatch>(base, std::move(group), *std::move(mount), changed);
}

}  // namespace cacheshim
