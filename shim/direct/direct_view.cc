// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/direct/direct_directory.h"
#include "shim/direct/direct_view.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <algorithm>

#include "common/mapped_state.h"
#include "common/names.h"
#include "common/unique_fd.h"
#include "common/used_names.h"
#include "shim/errno_guard.h"
#include "shim/routing/mount_file.h"
#include "shim/runtime.h"
#include "shim/start/process_files.h"

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x00001000U  // Linux 5.8
#endif

// Maps a view. A view's mappings are never unmapped or changed, so that calls in other threads, and calls interrupted
// by a signal, can continue to use them. Few mappings accumulate, because a filter is replaced at most a few times in a
// job's life. Only one thread maps a view at a time. While it does so, the mount answers the other threads' calls. If
// the process forks at that time, the mount answers all calls of the child, in which `is_mapping` remains set.
namespace cacheshim::direct {
namespace {

constexpr std::size_t kMostViews = 64;
constexpr unsigned kLongestPause = 1024;  // the most calls that go to the mount between two attempts

constinit View views[kMostViews] = {};
constinit std::size_t view_count = 0;
constinit std::atomic<const View*> serving{nullptr};
constinit std::atomic<const View*> latest{nullptr};
constinit std::atomic<unsigned> identity{0};  // incremented when the process changes its identity
constinit char user_run_base[PATH_MAX] = {};
constinit std::atomic<bool> is_given_up{false};
constinit std::atomic<bool> is_mapping{false};
constinit std::atomic<unsigned> pause_left{0};
constinit std::atomic<unsigned> next_pause{1};

// A mapping. The destructor unmaps it if keep() was not called.
class Mapped {
 public:
  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (data_ != nullptr) (void)::munmap(data_, size_);
  }
  bool map(int fd, std::size_t size, int protection) {
    void* const data = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return false;
    data_ = data;
    size_ = size;
    return true;
  }
  bool map(const char* path) {
    const UniqueFd fd(real::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd) return false;
    const off_t end = ::lseek(fd.get(), 0, SEEK_END);
    return end > 0 && map(fd.get(), static_cast<std::size_t>(end), PROT_READ);
  }
  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  void keep() { data_ = nullptr; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

struct Mappings {
  Mapped state;
  Mapped counters;
  Mapped filter;
};

// Writes DIRECTORY/NAME or, if `job` is not empty, DIRECTORY/NAME/JOB into `out`. Returns false if the path does not
// fit.
bool name_in(std::string_view directory, std::string_view name, std::string_view job,
             PathBuffer& out) {
  return join_path(out, {directory, "/", name, job.empty() ? "" : "/", job}) != 0;
}

bool take_state(std::string_view directory, View& view, Mapped& state) {
  PathBuffer path;
  if (!name_in(directory, kStateFile, {}, path)) return false;
  if (!state.map(path.text)) return false;
  const auto mapped = mapped_state(state.data(), state.size());
  if (!mapped) return false;
  view.alive = mapped->alive;
  view.base_changes = mapped->base_changes;
  view.rules = mapped->rules;
  view.device = mapped->device;
  view.base_device = mapped->base_device;
  view.is_base_local = mapped->is_base_local;
  // The state file must belong to the mount that this process sees, not to another mount at the same
  // path.
  if (!view.is_alive() || !runtime::is_device_of_mount(view.device)) return false;

  if (!name_in(directory, kBaseDirectory, {}, path)) return false;
  view.base_length = std::string_view(path.text).size();
  if (view.base_length >= sizeof view.base) return false;
  std::copy(path.text, path.text + view.base_length + 1, view.base);
  struct statx base;
  if (real::statx(AT_FDCWD, view.base, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_MNT_ID,
                  &base) != 0) {
    return false;
  }
  view.base_mount = base.stx_mnt_id;
  return (base.stx_mask & STATX_MNT_ID) != 0 && base.stx_ino == mapped->base_inode &&
         ::gnu_dev_makedev(base.stx_dev_major, base.stx_dev_minor) == view.base_device;
}

// Maps the counters, and stores the view's owner in `view`. Returns false if the owner is not this process's user. Only
// the owner and root can open the counters for writing. In a root process, this function also returns false for another
// user's view, because the mount shows that view to root differently.
bool take_counters(std::string_view directory, std::string_view job, View& view, Mapped& counters) {
  PathBuffer path;
  if (!name_in(directory, kCountersDirectory, job, path)) return false;
  const UniqueFd fd(real::open(path.text, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return false;
  struct statx st;
  if (real::statx(fd.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) != 0) return false;
  if (st.stx_uid != ::geteuid() || st.stx_uid != ::getuid() || st.stx_size < kCountersBytes) {
    return false;
  }
  view.uid = st.stx_uid;
  view.gid = st.stx_gid;
  const bool records_names = st.stx_size >= kCountersBytes + kUsedBytes;
  const std::size_t size = records_names ? kCountersBytes + kUsedBytes : kCountersBytes;
  if (!counters.map(fd.get(), size, PROT_READ | PROT_WRITE)) return false;
  view.counters = static_cast<CounterSlot*>(counters.data());
  if (records_names) {
    view.used_names =
        static_cast<std::uint64_t*>(static_cast<void*>(view.counters + kCounterSlots));
  }
  return true;
}

bool take_filter(std::string_view directory, std::string_view job, View& view, Mapped& filter) {
  PathBuffer path;
  if (!name_in(directory, kViewsDirectory, job, path)) return false;
  if (!filter.map(path.text)) return false;
  view.filter = FilterView::over(filter.data(), filter.size());
  return view.filter && !view.filter.is_retired();
}

// In a root process, returns whether the symlinks in the mount's root lead to the view of `job`. Root's paths go
// through these symlinks (Router::leave_view()), and the daemon chooses their targets by the job in the process's
// environment. If the daemon cannot read that environment, the symlinks lead to another job's view. For all other
// users, returns true without a check.
bool symlinks_lead_to_view(const Routes& routes, std::string_view job) {
  if (::geteuid() != 0) return true;
  if (routes.size() == 0) return false;
  const std::string_view name = routes[0].name;
  PathBuffer link;
  PathBuffer wanted;
  PathBuffer target;
  const std::size_t wanted_size = join_path(wanted, {kJobsName, "/", job, "/", name});
  if (wanted_size == 0 || join_path(link, {routes.mount(), "/", name}) == 0) return false;
  const ssize_t size = real::readlink(link.text, target.text, sizeof target.text);
  return size > 0 && std::string_view(target.text, static_cast<std::size_t>(size)) ==
                         std::string_view(wanted.text, wanted_size);
}

// Maps the counters last. When a view gets a new owner, the daemon (1) gives the counters' file to this owner, (2)
// makes the owner's filter, and (3) retires the previous filter. So if a process finds that its user owns the counters,
// the filter that it has mapped before is this user's filter, or an earlier one, which the daemon retires. It is never
// the filter of a later owner.
bool map_view(std::string_view run_base, View& view, Mappings& mappings) {
  const Routes& routes = runtime::routes();
  const std::string_view job = routes.job();
  if (run_base.empty() || job.empty()) return false;
  PathBuffer directory;
  const std::size_t size = run_directory_of(routes.mount(), run_base, directory);
  const std::string_view path(directory.text, size);
  return size != 0 && take_state(path, view, mappings.state) &&
         take_filter(path, job, view, mappings.filter) &&
         take_counters(path, job, view, mappings.counters) && symlinks_lead_to_view(routes, job);
}

const View* map_anew() {
  if (view_count == kMostViews) return nullptr;
  for (const std::string_view base :
       {std::string_view(run_base()), std::string_view(user_run_base)}) {
    View& view = views[view_count];
    view = View();
    Mappings mappings;
    if (!map_view(base, view, mappings)) continue;
    for (Mapped* mapped : {&mappings.state, &mappings.counters, &mappings.filter}) mapped->keep();
    ++view_count;
    return &view;
  }
  return nullptr;
}

// Maps the view anew and makes it the current one. If that fails, returns null, and doubles the
// pause before the next attempt. Requires: `is_mapping` is set.
const View* try_mapping() {
  const ErrnoGuard errno_guard;
  serving.store(nullptr);
  const unsigned before = identity.load();
  const View* const view = map_anew();
  if (view != nullptr) {
    next_pause.store(1, std::memory_order_relaxed);
    latest.store(view, std::memory_order_release);
    serving.store(view);
    if (identity.load() == before) return view;
    serving.store(nullptr);
  }
  const unsigned pause = next_pause.load(std::memory_order_relaxed);
  pause_left.store(pause, std::memory_order_relaxed);
  next_pause.store(std::min(2 * pause, kLongestPause), std::memory_order_relaxed);
  return nullptr;
}

[[gnu::noinline]] const View* map_view_if_due() {
  if (is_given_up.load(std::memory_order_relaxed)) return nullptr;
  const unsigned left = pause_left.load(std::memory_order_relaxed);
  if (left > 0) {
    pause_left.store(left - 1, std::memory_order_relaxed);  // concurrent calls may count as one
    return nullptr;
  }
  if (is_mapping.exchange(true, std::memory_order_acquire)) return nullptr;
  const View* const view = try_mapping();
  is_mapping.store(false, std::memory_order_release);
  return view;
}

// Selects the slot by the address of the thread's stack, so that threads that count at the same time
// rarely share a cache line.
CounterSlot& own_slot(CounterSlot* slots) {
  const auto stack = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return slots[((stack >> 12) * 0x9e3779b97f4a7c15) >> 58];
}

}  // namespace

static_assert(kCounterSlots == 64);

void View::count_open() const {
  __atomic_fetch_add(&own_slot(counters).opens, 1, __ATOMIC_RELAXED);
}

void View::count_lookup() const {
  __atomic_fetch_add(&own_slot(counters).lookups, 1, __ATOMIC_RELAXED);
}

bool View::is_base_in_sight() const {
  constexpr int kNoServerSync = AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
  const ErrnoGuard errno_guard;
  struct statx st;
  return real::statx(AT_FDCWD, base, kNoServerSync, STATX_MNT_ID, &st) == 0 &&
         st.stx_mnt_id == base_mount;
}

void View::fetch_counters() const { __builtin_prefetch(&own_slot(counters), 1); }

const View* current_view() {
  const View* const view = serving.load(std::memory_order_acquire);
  if (view != nullptr && view->is_current()) [[likely]]
    return view;
  return map_view_if_due();
}

const View* last_view() { return latest.load(std::memory_order_acquire); }

void forget_view() {
  identity.fetch_add(1);
  serving.store(nullptr);
  pause_left.store(0, std::memory_order_relaxed);
}

void give_up() {
  is_given_up.store(true);
  forget_view();
  drop_base_directory();  // otherwise its descriptor would be a way out of a chroot
}

void give_up_for_filter() {
  give_up();
  latest.store(nullptr);
}

void set_user_run_base(std::string_view path) {
  if (path.empty() || path.size() >= sizeof user_run_base) return;
  std::copy(path.data(), path.data() + path.size(), user_run_base);
}

}  // namespace cacheshim::direct
