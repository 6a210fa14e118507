// SPDX-License-Identifier: Apache-2.0
#include "fuse/daemon.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "common/cuda_defaults.h"
#include "common/exit_codes.h"
#include "common/mount_info.h"
#include "common/names.h"
#include "fuse/capabilities.h"
#include "fuse/control/control_directory.h"
#include "fuse/dispatch/operations.h"
#include "fuse/jobs/run_directory.h"
#include "fuse/mount.h"
#include "fuse/transport/session.h"
#include "fuse/transport/wire.h"
#include "fuse/vfs/filesystem.h"
#include "fuse/vfs/plain_overlay.h"
#include "store/base/store.h"
#include "store/base/store_format.h"
#include "store/layer/closing_record.h"
#include "store/layer/layer.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

constexpr int kUnmountedSignal = SIGUSR2;  // a receiver sends it to the main thread

Result<RunDirectory> make_run_directory(const DaemonOptions& options, const std::string& routes) {
  UniqueFd lock;
  if (options.run_lock) lock = std::move(*options.run_lock);
  return RunDirectory::make(options.run_dir, std::move(lock), routes, options.cuda_defaults);
}

unsigned worker_count(unsigned wanted) {
  if (wanted > 0) return wanted;
  return std::clamp(2 * std::thread::hardware_concurrency(), 4U, 16U);
}

constexpr rlim_t kFewFiles = 4096;

// Each file that a process opens on the mount takes a descriptor of the daemon, so the daemon raises its limit to the
// maximum. Once the daemon reaches the limit, the opens of all processes fail, so this function warns if the maximum is
// low.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == -1) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // if this fails, the limit stays as it was
  if (::getrlimit(RLIMIT_NOFILE, &limit) == -1 || limit.rlim_cur >= kFewFiles) return;
  spdlog::warn(
      "the daemon may have {} files open (RLIMIT_NOFILE), and each file that any process has open on "
      "the mount takes one: beyond that all opens fail with EMFILE; mount it where `ulimit -Hn` is {} "
      "or more",
      limit.rlim_cur, kFewFiles);
}

void give_up_capabilities(const DaemonOptions& options) {
  const Status dropped =
      drop_capabilities(options.owners, !options.remote.urls.empty() || options.metrics);
  if (dropped) return;
  spdlog::warn("cannot give up capabilities: {}; the daemon keeps all that it has",
               std::strerror(dropped.error().code()));
}

// Returns the directory that log messages show as served: the topmost lower directory of a plain overlay, otherwise the
// store.
std::string served_directory(const DaemonOptions& options) {
  return options.overlay ? options.overlay->lowers.front() : options.store_dir;
}

// Blocks the signals in this thread, and so in every thread that it creates later. The main thread waits for them by
// signalfd(2).
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, kUnmountedSignal}) sigaddset(&signals, signal);
  (void)::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // cannot fail for a valid set
  return signals;
}

Status prepare_base(const Store& store, const std::vector<Profile>& profiles) {
  for (const Profile& profile : profiles) CACHESHIM_CHECK(store.ensure_base_dir(profile.name));
  return {};
}

// Records the mount's path. An entry that contains absolute paths is published only from the mount at the recorded
// path. If an entry of the base contains another mount's path, the next valid build replaces the entry. If another
// daemon was serving the store when this daemon opened it, an existing record stays.
void record_mount_path(Store& store, const std::string& shown) {
  const std::string before = store.mount_path();
  if (before == shown) return;
  if (!before.empty() && store.has_other_daemons()) {
    spdlog::warn(
        "this store is mounted at '{}' as well: entries that hold paths are published from "
        "there alone",
        before);
    return;
  }
  if (!store.record_mount_path(shown)) {
    spdlog::warn("cannot record '{}' in the store; entries that hold paths are not published",
                 shown);
  } else if (!before.empty()) {
    spdlog::warn(
        "this store was mounted at '{}' before: entries that hold paths below it are rebuilt",
        before);
  }
}

// Reads mountinfo, because stat(2) of the path may block on a file system above the mount.
bool is_mounted_at(const std::string& path, dev_t device) {
  const auto mount = find_mount(read_mounts(), path);
  return mount && mount->device == fmt::format("{}:{}", major(device), minor(device));
}

// Waits for a signal and returns it. Calls `on_left` when the mount is no longer at its path in this mount namespace,
// and again at the signal. The first call can come long before the second: other mount namespaces or open files may
// keep the mount alive.
int wait_for_signal(const UniqueFd& signals, const std::string& mount_point,
                    const std::function<void()>& on_left) {
  const auto device = device_of_mount(mount_point);
  const auto mounts = sys::open_path("/proc/self/mountinfo", O_RDONLY);
  const bool is_known = device && mounts && is_mounted_at(mount_point, *device);
  pollfd events[] = {{signals.get(), POLLIN, 0}, {is_known ? mounts->get() : -1, POLLPRI, 0}};
  for (;;) {
    (void)::poll(events, 2, -1);
    signalfd_siginfo signal{};
    if (events[0].revents != 0 && ::read(signals.get(), &signal, sizeof signal) == sizeof signal) {
      on_left();
      return static_cast<int>(signal.ssi_signo);
    }
    if (events[1].revents == 0 || is_mounted_at(mount_point, *device)) continue;
    on_left();
    events[1].fd = -1;
  }
}

struct MountEvents {
  std::function<void()> on_mounted;  // once the file system is mounted
  std::function<void()> on_left;     // see wait_for_signal()
};

// Mounts the file system and serves it until it is unmounted or a signal arrives.
std::optional<DaemonError> serve_mount(Mount& mount, const DaemonOptions& options,
                                       const MountEvents& events,
                                       const std::function<void()>& on_ready) {
  const sigset_t blocked = block_signals();
  const UniqueFd signals(::signalfd(-1, &blocked, SFD_CLOEXEC));
  if (!signals) {
    return DaemonError{
        kExitUnavailable,
        fmt::format("cannot wait for signals: {}; nothing was mounted", std::strerror(errno))};
  }
  ControlDirectory control(mount);
  Filesystem filesystem(mount, control);
  auto mounted = Session::mount(options, request_handler(filesystem));
  if (auto* error = std::get_if<DaemonError>(&mounted)) return std::move(*error);
  Session& session = *std::get<std::unique_ptr<Session>>(mounted);
  events.on_mounted();
  (void)::umask(0);  // the daemon applies each caller's umask itself
  // Requests queue in the kernel until session.start(). `on_ready` runs before any thread starts, because the caller
  // may replace the logger.
  spdlog::info("serving '{}' at '{}'", served_directory(options), options.mount_point);
  on_ready();
  mount.start(session.device(), [&](const Baton& baton) { filesystem.names.reap(baton); });
  spdlog::info("changes outside the mount are detected by: {}", to_string(mount.timeouts.watch_mode()));
  const pthread_t waiting = ::pthread_self();
  session.start({.threads = worker_count(options.threads),
                 .use_rings = options.io_uring,
                 .on_end = [waiting] { (void)::pthread_kill(waiting, kUnmountedSignal); }});
  const int signal = wait_for_signal(signals, options.mount_point, events.on_left);
  spdlog::info("{}; ending", signal == kUnmountedSignal ? "unmounted" : ::strsignal(signal));
  mount.fail_waits();  // first, because the following steps may take a long time
  session.detach();
  mount.finish_tasks();
  session.stop();
  if (mount.invalidation.notifier().is_blocked()) {
    spdlog::warn("a process blocks an invalidation in the kernel: the daemon exits once that process continues");
    session.abort();
  }
  mount.stop();
  return std::nullopt;
}

// Makes the base visible to processes, so that they can open its files directly. If that fails, jobs open everything
// through the mount.
void offer_direct_opens(RunDirectory& run_directory, const Store& store,
                        const DaemonOptions& options) {
  if (options.owners.keep) return;
  const Status offered = run_directory.offer_base(store.base(), options.profiles);
  if (offered) return;
  spdlog::info("cannot show the base at '{}/base': {}; jobs open everything through the mount",
               options.run_dir, std::strerror(offered.error().code()));
}

void announce(RunDirectory& run_directory, const DaemonOptions& options) {
  const auto device = device_of_mount(options.mount_point);
  const Status announced = device ? run_directory.announce(*device) : device.error();
  if (announced) return;
  spdlog::warn("cannot write '{}/state': {}; jobs open everything through the mount",
               options.run_dir, std::strerror(announced.error().code()));
}

// EWOULDBLOCK: another daemon serves a mount at the same path. That mount is in another mount namespace, or it was
// detached while in use.
void warn_of_run_directory(const std::string& run_dir, Errno error) {
  const bool is_taken = error == EWOULDBLOCK;
  spdlog::warn("cannot use run directory '{}': {}; {}", run_dir,
               is_taken ? "another daemon serves a mount at the same path and has it"
                        : std::strerror(error.code()),
               "jobs take their routes and read the base through the mount");
}

// Returns the directory of the layers, for answers of the control directory; empty if there are no layers.
std::string layers_path(const DaemonOptions& options) {
  if (options.is_store_read_only) return "";
  return options.layers_dir.empty() ? options.store_dir + "/.cacheshim/layers" : options.layers_dir;
}

MountOptions mount_options_of(const DaemonOptions& options, std::string routes,
                              const DirectAccess* direct) {
  return {.mount_point = options.mount_point,
          .layers_dir = layers_path(options),
          .store_dir = options.store_dir,
          .run_dir = options.run_dir,
          .routes = std::move(routes),
          .publish = options.publish,
          .watch = options.watch,
          .job_idle = options.job_idle,
          .layer_keep = options.layer_keep,
          .flight_timeout = options.flight_timeout,
          .owners = options.owners,
          .cycle = options.cycle,
          .gc = options.gc,
          .gc_interval = options.gc_interval,
          .direct = direct,
          .open_files = options.open_files,
          .allow = options.allow,
          .verify_on_open = options.verify_on_open,
          .limits = options.limits,
          .remote = options.is_store_read_only ? remote::Settings() : options.remote,
          .remote_helper = options.remote_helper,
          .metrics = options.metrics,
          .metrics_helper = options.metrics_helper};
}

std::optional<DaemonError> serve_store(Store& store, const DaemonOptions& options,
                                       const std::function<void()>& on_ready) {
  const Status prepared =
      options.is_store_read_only ? Status() : prepare_base(store, options.profiles);
  if (!prepared) {
    return DaemonError{kExitUnavailable,
                       fmt::format("cannot write to store '{}': {}; nothing was mounted",
                                   options.store_dir, std::strerror(prepared.error().code()))};
  }
  const std::string routes = compile_routes(options.profiles);
  auto run_directory = make_run_directory(options, routes);
  if (!run_directory) {
    warn_of_run_directory(options.run_dir, run_directory.error());
  } else {
    offer_direct_opens(*run_directory, store, options);
  }
  // verify_on_open: the daemon verifies each file before a process reads it, so no file may be opened directly.
  const bool may_be_direct = run_directory && !options.verify_on_open;
  const DirectAccess* const direct = may_be_direct ? run_directory->direct() : nullptr;
  Mount mount(store, options.profiles, mount_options_of(options, routes, direct));
  const MountEvents events{.on_mounted =
                               [&] {
                                 if (!options.is_store_read_only) {
                                   record_mount_path(store, mount.options.mount_point);
                                 }
                                 if (run_directory) announce(*run_directory, options);
                               },
                           .on_left =
                               [&] {
                                 if (run_directory) run_directory->end_direct_opens();
                               }};
  return serve_mount(mount, options, events, on_ready);
}

std::optional<DaemonError> serve_overlay(const DaemonOptions& options,
                                         const std::function<void()>& on_ready) {
  auto opened = open_plain_overlay(options);
  if (auto* error = std::get_if<DaemonError>(&opened)) return std::move(*error);
  auto& directories = std::get<PlainOverlay>(opened);
  // If this fails, there is no log file, and `unmount` does not wait for the daemon to exit.
  const auto run_directory = make_run_directory(options, "");
  std::vector<int> lowers;
  for (const UniqueFd& lower : directories.lowers) lowers.push_back(lower.get());
  const Store store = Store::bare(std::move(directories.lowers.front()));
  const std::vector<Profile> no_profiles;
  Mount mount(store, no_profiles,
                        {.mount_point = options.mount_point,
                         .layers_dir = "",
                         .store_dir = "",
                         .run_dir = options.run_dir,
                         .routes = "",
                         .publish = PublishPolicy::kNever,
                         .watch = options.watch,
                         .job_idle = options.job_idle,
                         .layer_keep = options.layer_keep,
                         .flight_timeout = std::chrono::seconds(0),
                         .owners = options.owners,
                         .cycle = options.cycle,
                         .gc = {},
                         .gc_interval = options.gc_interval,
                         .allow = {},
                         .verify_on_open = false});
  if (const Status shown =
          mount.show_plain(lowers, std::move(directories.upper), std::move(directories.work));
      !shown) {
    return DaemonError{kExitUnavailable,
                       fmt::format("cannot read '{}': {}; nothing was mounted",
                                   served_directory(options), std::strerror(shown.error().code()))};
  }
  const MountEvents events{.on_mounted = [] {}, .on_left = [&] { directories.served.reset(); }};
  return serve_mount(mount, options, events, on_ready);
}

// Opens only the store's base. Checks the store's format record if it is readable.
std::variant<Store, StoreError> open_read_only(const std::string& path) {
  auto base = sys::open_path(path, O_RDONLY | O_DIRECTORY);
  if (!base) {
    return StoreError{fmt::format("cannot use store '{}': {}; nothing was mounted", path,
                                  std::strerror(base.error().code()))};
  }
  const auto text =
      sys::read_file(base->get(), fmt::format("{}/{}", kControlName, kStoreFormatFile));
  const auto format = text ? parse_store_format(*text) : StoreFormat();
  if (const auto* refusal = std::get_if<std::string>(&format)) {
    return StoreError{fmt::format("store '{}': {}; nothing was mounted", path, *refusal)};
  }
  return Store::bare(*std::move(base));
}

// Returns the options for a read-only store. Such a store has no layers, so jobs cannot change anything.
DaemonOptions without_changes(DaemonOptions options) {
  options.publish = PublishPolicy::kNever;
  options.flight_timeout = std::chrono::seconds(0);
  options.gc = {};
  return options;
}

}  // namespace

std::optional<DaemonError> serve(const DaemonOptions& options,
                                 const std::function<void()>& on_ready) {
  (void)block_signals();  // before any thread starts that could receive the signals
  raise_file_limit();
  give_up_capabilities(
      options);  // keeps what mount(2) requires, and comes before any thread starts
  (void)::umask(022);
  wire::use_trace(options.trace);
  if (options.overlay) return serve_overlay(options, on_ready);
  auto opened = options.is_store_read_only ? open_read_only(options.store_dir)
                                           : Store::open(options.store_dir, options.layers_dir);
  if (const auto* error = std::get_if<StoreError>(&opened)) {
    return DaemonError{kExitUnavailable, error->message};
  }
  Store& store = std::get<Store>(opened);
  return serve_store(store, options.is_store_read_only ? without_changes(options) : options,
                     on_ready);
}

}  // namespace cacheshim
