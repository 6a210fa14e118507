// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

#include "store/base/base_watch_modes.h"
#include "store/sys/paths.h"
#include "store/sys/sys.h"
#include "store/threads/mutex.h"

// Sets a watch on each directory before the first lookup in that directory, so that no change is
// missed. Sets a watch on the parent first: if the directory does not exist yet, the parent's watch
// reports its creation.
//
// Two kinds of events leave directories without a watch, or watches without a path. If a directory moves, the paths of
// the watches below it are unknown. If a directory appears where it was absent, it may get contents before it can be
// watched. In both cases InotifyWatch reports that anything may have changed (kUnknown), and the next lookups set the
// watches again.
namespace cacheshim {
namespace {

constexpr std::uint32_t kNameBits = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;
constexpr std::uint32_t kContent = IN_ATTRIB | IN_CLOSE_WRITE;
constexpr std::uint32_t kWatchBits =
    kNameBits | kContent | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK;

// Stands for a missing watch: the directory was looked up, but does not exist below this root.
constexpr int kAbsent = -1;
// The maximum number of recorded paths, including absent ones. It equals the highest default of
// fs.inotify.max_user_watches (Linux 5.11).
constexpr std::size_t kMostWatches = 1 << 20;
// The maximum number of paths that were absent when they were recorded. There is a limit because a
// client may look up any number of directories that exist only in its job's layer.
constexpr std::size_t kMostAbsent = 1 << 16;

bool is_absent(const std::vector<int>& watches) {
  return std::all_of(watches.begin(), watches.end(), [](int watch) { return watch == kAbsent; });
}

class InotifyWatch final : public BaseWatch {
 public:
  InotifyWatch(EventLoop& loop, const std::vector<int>& roots, UniqueFd events, Callback changed)
      : roots_(roots),
        events_(std::move(events)),
        changed_(std::move(changed)),
        reader_(loop, events_.get(), [this] { read_events(); }) {}

  WatchMode mode() const override { return WatchMode::kInotify; }
  bool ensure(const std::string& directory) override;

 private:
  using Watches = std::vector<int>;  // the watches of one path: one for each root, or kAbsent
  struct Place {
    std::size_t root;
    std::string directory;
    friend bool operator==(const Place&, const Place&) = default;
  };

  void read_events();
  void take(const inotify_event& event, std::vector<BaseChange>& changes);
  void take_at(const Place& place, const inotify_event& event, std::vector<BaseChange>& changes)
      REQUIRES(mutex_);
  const Watches* record(const std::string& directory, const Watches* above) REQUIRES(mutex_);
  Result<int> watch(const Place& place) REQUIRES(mutex_);
  int* find_watch(const Place& place) REQUIRES(mutex_);
  void forget_below(const std::string& directory) REQUIRES(mutex_);
  void drop_all(std::vector<BaseChange>& changes) REQUIRES(mutex_);

  const std::vector<int> roots_;
  const UniqueFd events_;
  const Callback changed_;
  Mutex mutex_;
  // Indexed by watch. Several roots may contain the same directory, which then has a single watch.
  std::unordered_map<int, std::vector<Place>> places_ GUARDED_BY(mutex_);
  // Indexed by path; the parents of each path are also present. ensure() adds nothing below a directory that is absent
  // from all roots: the record of the absent directory covers everything below it.
  std::unordered_map<std::string, Watches> watches_ GUARDED_BY(mutex_);
  std::size_t absent_ GUARDED_BY(mutex_) = 0;  // the number of paths recorded as absent; forget_below() recounts them
  EventReader reader_;  // the last member: it uses all the others
};

bool InotifyWatch::ensure(const std::string& directory) {
  const MutexLock lock(mutex_);
  if (watches_.contains(directory)) return true;
  std::string_view rest = directory;
  std::string path;
  const Watches* above = nullptr;
  for (;;) {  // goes down from the root, so that each parent is watched first
    const auto known = watches_.find(path);
    above = known != watches_.end() ? &known->second : record(path, above);
    if (above == nullptr) return false;
    if (rest.empty() || is_absent(*above)) return true;
    path = join_path(path, take_component(rest));
  }
}

// Sets a watch on the directory below each root, and records the watches. `above`: the watches of
// the parent; null for the root. Returns null if a watch cannot be set, or if kMostAbsent is reached.
const InotifyWatch::Watches* InotifyWatch::record(const std::string& directory,
                                                  const Watches* above) {
  Watches watches(roots_.size(), kAbsent);
  for (std::size_t root = 0; root < roots_.size(); ++root) {
    if (above != nullptr && (*above)[root] == kAbsent) continue;
    const Result<int> added = watch({root, directory});
    if (!added) return nullptr;
    watches[root] = *added;
  }
  if (is_absent(watches) && absent_ >= kMostAbsent) return nullptr;
  absent_ += is_absent(watches) ? 1U : 0U;
  return &(watches_[directory] = std::move(watches));
}

// Returns kAbsent if there is no such directory. Errors: ENOSPC beyond fs.inotify.max_user_watches.
Result<int> InotifyWatch::watch(const Place& place) {
  const auto opened =
      sys::open_beneath(roots_[place.root], place.directory, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  if (opened.failed_with(ENOENT) || opened.failed_with(ENOTDIR)) return kAbsent;
  if (!opened) return opened.error();
  const std::string path = "/proc/self/fd/" + std::to_string(opened->get());
  // `path` is a symlink in /proc, which the call must follow
  const std::uint32_t events = kWatchBits & ~std::uint32_t{IN_DONT_FOLLOW};
  const int added = ::inotify_add_watch(events_.get(), path.c_str(), events);
  if (added == -1) return Errno::last();
  std::vector<Place>& places = places_[added];
  if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  return added;
}

int* InotifyWatch::find_watch(const Place& place) {
  const auto found = watches_.find(place.directory);
  return found == watches_.end() ? nullptr : &found->second[place.root];
}

void InotifyWatch::forget_below(const std::string& directory) {
  std::erase_if(watches_, [&](const auto& known) {
    return known.first == directory || known.first.starts_with(directory + "/");
  });
  absent_ = static_cast<std::size_t>(std::count_if(
      watches_.begin(), watches_.end(), [](const auto& known) { return is_absent(known.second); }));
}

// Removes all watches and reports that anything may have changed.
void InotifyWatch::drop_all(std::vector<BaseChange>& changes) {
  for (const auto& [watch, places] : places_) (void)::inotify_rm_watch(events_.get(), watch);
  places_.clear();
  watches_.clear();
  absent_ = 0;
  changes.push_back({BaseChange::Kind::kUnknown, {}, {}});
}

void InotifyWatch::read_events() {
  alignas(inotify_event) char buffer[64 * 1024];
  std::vector<BaseChange> changes;
  const ssize_t size = ::read(events_.get(), buffer, sizeof buffer);
  for (const char* at = buffer; at < buffer + size;) {  // -1 (EAGAIN): there are no events
    const auto& event = *reinterpret_cast<const inotify_event*>(at);
    take(event, changes);
    at += sizeof event + event.len;
  }
  {
    const MutexLock lock(mutex_);
    if (watches_.size() > kMostWatches) drop_all(changes);
  }
  if (!changes.empty()) changed_(changes);
}

void InotifyWatch::take(const inotify_event& event, std::vector<BaseChange>& changes) {
  const MutexLock lock(mutex_);
  if ((event.mask & IN_Q_OVERFLOW) != 0)
    return drop_all(changes);  // a directory may have been created or removed
  const auto found = places_.find(event.wd);
  if (found == places_.end()) return;  // the watch of this event was removed
  const bool moved =
      (event.mask & IN_MOVE_SELF) != 0 ||
      ((event.mask & IN_ISDIR) != 0 && (event.mask & (IN_MOVED_FROM | IN_MOVED_TO)) != 0);
  if (moved) return drop_all(changes);
  const std::vector<Place> places = found->second;
  // The kernel has removed the watch, because the directory is gone.
  if ((event.mask & IN_IGNORED) != 0) places_.erase(found);
  for (const Place& place : places) take_at(place, event, changes);
}

// Adds the change that `event` reports at `place` to `changes`. A removed directory stays recorded as absent, so that
// its reappearance is detected.
void InotifyWatch::take_at(const Place& place, const inotify_event& event,
                           std::vector<BaseChange>& changes) {
  if ((event.mask & IN_IGNORED) != 0) {
    int* const watch = find_watch(place);
    if (watch != nullptr && *watch == event.wd) *watch = kAbsent;
    return;
  }
  const std::string name = event.len > 0 ? event.name : "";
  const std::string child = join_path(place.directory, name);
  int* const watch = (event.mask & IN_ISDIR) != 0 ? find_watch({place.root, child}) : nullptr;
  if (watch != nullptr && (event.mask & IN_DELETE) != 0) *watch = kAbsent;
  if (watch != nullptr && (event.mask & IN_CREATE) != 0 && *watch == kAbsent) {
    forget_below(child);
    changes.push_back({BaseChange::Kind::kUnknown, {}, {}});
  }
  if ((event.mask & kNameBits) != 0) {
    add_change(changes, {BaseChange::Kind::kName, place.directory, name});
  }
  if ((event.mask & kContent) != 0) {
    add_change(changes, {BaseChange::Kind::kContent, place.directory, name});
  }
}

}  // namespace

std::unique_ptr<BaseWatch> start_inotify(EventLoop& loop, const std::vector<int>& directories,
                                         const BaseWatch::Callback& changed) {
  UniqueFd events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events) return nullptr;
  return std::make_unique<InotifyWatch>(loop, directories, std::move(events), changed);
}

}  // namespace cacheshim
