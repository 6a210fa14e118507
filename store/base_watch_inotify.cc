// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <mutex>
#include <unordered_map>

#include "store/base_watch_modes.h"
#include "store/paths.h"
#include "store/sys.h"

// A watch on each folder that is looked into, set before the look, so that no change falls between.
// When a folder moves, the paths of the watches below it are not known any more: all are taken away,
// and with them what they still had to tell, so that everything counts as changed; they come back
// with the next looks.
namespace cacheshim {
namespace {

constexpr std::uint32_t kNames = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;
constexpr std::uint32_t kContent = IN_ATTRIB | IN_CLOSE_WRITE;
constexpr std::uint32_t kEvents =
    kNames | kContent | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK;

class InotifyWatch final : public BaseWatch {
 public:
  InotifyWatch(int base, UniqueFd events, Callback changed)
      : base_(base),
        events_(std::move(events)),
        changed_(std::move(changed)),
        thread_(events_.get(), [this] { read_events(); }) {}

  WatchMode mode() const override { return WatchMode::kInotify; }
  bool ensure(const std::string& folder) override;

 private:
  void read_events();
  void take(const inotify_event& event, std::vector<BaseChange>& changes);
  void drop_all();

  const int base_;
  const UniqueFd events_;
  const Callback changed_;
  std::mutex mutex_;
  std::unordered_map<int, std::string> folders_;  // by watch
  std::unordered_map<std::string, int> watches_;  // by folder
  EventThread thread_;                            // the last: it uses all the others
};

bool InotifyWatch::ensure(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  if (watches_.contains(folder)) return true;
  const auto opened = sys::open_beneath(base_, folder, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  // Where the base has no such folder, its parent's watch tells when it comes.
  if (!opened) return opened.failed_with(ENOENT) || opened.failed_with(ENOTDIR);
  const std::string path = "/proc/self/fd/" + std::to_string(opened->get());
  const std::uint32_t events = kEvents & ~std::uint32_t{IN_DONT_FOLLOW};  // the link is ours
  const int watch = ::inotify_add_watch(events_.get(), path.c_str(), events);
  if (watch == -1) return false;  // ENOSPC: fs.inotify.max_user_watches
  if (const auto before = folders_.find(watch); before != folders_.end()) {
    watches_.erase(before->second);  // the same folder by its name before a move
  }
  folders_[watch] = folder;
  watches_[folder] = watch;
  return true;
}

// With mutex_ held.
void InotifyWatch::drop_all() {
  for (const auto& [watch, folder] : folders_) (void)::inotify_rm_watch(events_.get(), watch);
  folders_.clear();
  watches_.clear();
}

void InotifyWatch::read_events() {
  alignas(inotify_event) char buffer[64 * 1024];
  std::vector<BaseChange> changes;
  for (;;) {
    const ssize_t size = ::read(events_.get(), buffer, sizeof buffer);
    if (size <= 0) break;  // EAGAIN: that was all
    for (const char* at = buffer; at < buffer + size;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(at);
      take(event, changes);
      at += sizeof event + event.len;
    }
  }
  if (!changes.empty()) changed_(changes);
}

void InotifyWatch::take(const inotify_event& event, std::vector<BaseChange>& changes) {
  const std::lock_guard lock(mutex_);
  if ((event.mask & IN_Q_OVERFLOW) != 0) {
    changes.push_back({BaseChange::Kind::kUnknown, {}, {}});
    return;
  }
  const auto found = folders_.find(event.wd);
  if (found == folders_.end()) return;  // of a watch that has been taken away
  const std::string folder = found->second;
  if ((event.mask & IN_IGNORED) != 0) {  // the folder is gone, and its watch
    const auto watch = watches_.find(folder);
    if (watch != watches_.end() && watch->second == event.wd) watches_.erase(watch);
    folders_.erase(event.wd);
    return;
  }
  const std::string name = event.len > 0 ? event.name : "";
  const bool moved =
      (event.mask & IN_MOVE_SELF) != 0 ||
      ((event.mask & IN_ISDIR) != 0 && (event.mask & (IN_MOVED_FROM | IN_MOVED_TO)) != 0);
  if (moved) {
    drop_all();
    changes.push_back({BaseChange::Kind::kUnknown, {}, {}});
  } else if ((event.mask & kNames) != 0) {
    changes.push_back({BaseChange::Kind::kName, folder, name});
  }
  if ((event.mask & kContent) != 0) changes.push_back({BaseChange::Kind::kContent, folder, name});
}

}  // namespace

std::unique_ptr<BaseWatch> start_inotify(int base, const BaseWatch::Callback& changed) {
  UniqueFd events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events) return nullptr;
  return std::make_unique<InotifyWatch>(base, std::move(events), changed);
}

}  // namespace cacheshim
