// SPDX-License-Identifier: Apache-2.0
#include "fuse/daemon.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "common/cuda_defaults.h"
#include "common/exit_codes.h"
#include "common/names.h"
#include "fuse/filesystem.h"
#include "fuse/plain_overlay.h"
#include "fuse/session.h"
#include "store/closing_record.h"
#include "store/layer.h"
#include "store/store.h"
#include "store/sys.h"

namespace cacheshim {
namespace {

constexpr int kUnmountedSignal = SIGUSR2;  // from the last worker to the thread that waits
constexpr std::string_view kLockFile = kRunLockFile;

// What the preloaded library (routes, which a plain overlay has none of) and `cacheshim unmount` look
// for while the daemon lives. Gone with it,
// log and all, when it ends well; a daemon that dies leaves its log.
class RunFolder {
 public:
  static Result<RunFolder> make(const DaemonOptions& options, const std::string& routes) {
    const std::string& path = options.run_dir;
    RunFolder folder;
    if (path.empty()) return folder;
    std::error_code failed;
    std::filesystem::create_directories(path, failed);
    if (failed) return Errno(failed.value());
    CACHESHIM_TRY(fd, sys::open_path(path, O_RDONLY | O_DIRECTORY));
    CACHESHIM_TRY(st, sys::stat_fd(fd.get()));
    // Processes take their routes from here: nobody else may be able to lay them.
    if (st.st_uid != ::geteuid() || (st.st_mode & 022) != 0) return Errno(EPERM);
    if (options.run_lock) {
      folder.lock_ = std::move(*options.run_lock);
    } else {
      CACHESHIM_TRY(lock, sys::open_beneath(fd.get(), kLockFile, O_RDWR | O_CREAT, 0644));
      CACHESHIM_CHECK(sys::lock_file(lock.get(), LOCK_EX | LOCK_NB));
      folder.lock_ = std::move(lock);
    }
    forget_closing(path);  // that was of the mount before
    if (!routes.empty()) {
      CACHESHIM_CHECK(sys::replace_file(fd.get(), std::string(kRoutesFile), routes, 0644));
      // Empty too, where the daemon before this one said something.
      CACHESHIM_CHECK(
          sys::replace_file(fd.get(), std::string(kCudaDefaultsFile), options.cuda_defaults, 0644));
    }
    folder.path_ = path;
    return folder;
  }
  RunFolder(RunFolder&&) = default;
  ~RunFolder() {
    std::error_code ignored;  // what stays behind says nothing wrong: its lock is free
    if (lock_) std::filesystem::remove_all(path_, ignored);
  }

 private:
  RunFolder() = default;
  std::string path_;
  UniqueFd lock_;
};

unsigned worker_count(unsigned wanted) {
  if (wanted > 0) return wanted;
  return std::clamp(2 * std::thread::hardware_concurrency(), 4U, 16U);
}

// A descriptor an open file of any job: as many as we may have.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == -1) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);  // then it stays as it was
}

std::string shown_path(const DaemonOptions& options) {
  return options.shown_path.empty() ? options.mount_point : options.shown_path;
}

// For messages.
std::string served_folder(const DaemonOptions& options) {
  return options.overlay ? options.overlay->lowers.front() : options.store_dir;
}

// Blocked in every thread, so that one can wait for them.
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

// Entries that hold absolute paths are published only from the path on record, and replaced when they
// are of another one. It moves with the mount, but not away from a daemon that serves it.
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
        "this store was mounted at '{}' before: entries that hold paths below it are built "
        "anew",
        before);
  }
}

// Mounts and serves until the end. `on_mounted` is called once the mount is there.
std::optional<DaemonError> serve_mount(Filesystem& filesystem, const DaemonOptions& options,
                                       const std::function<void()>& on_mounted,
                                       const std::function<void()>& on_ready) {
  const sigset_t signals = block_signals();
  auto mounted = Session::mount(options.mount_point, options.mount_flags, filesystem);
  if (auto* error = std::get_if<DaemonError>(&mounted)) return std::move(*error);
  Session& session = *std::get<std::unique_ptr<Session>>(mounted);
  on_mounted();
  (void)::umask(0);  // modes are the callers' from here on
  // The mount takes requests from now on and serves them in a moment. Called before there is a thread
  // that works: the caller may exchange the logger.
  spdlog::info("serving '{}' at '{}'", served_folder(options), shown_path(options));
  on_ready();
  filesystem.start(session.get());
  spdlog::info("raw changes are watched for by: {}", to_string(filesystem.watch_mode()));
  const pthread_t waiting = ::pthread_self();
  session.start(worker_count(options.threads),
                [waiting] { (void)::pthread_kill(waiting, kUnmountedSignal); });
  int signal = 0;
  (void)::sigwait(&signals, &signal);  // cannot fail for a valid set
  spdlog::info("{}; ending", signal == kUnmountedSignal ? "unmounted" : ::strsignal(signal));
  filesystem.close_waits();  // before anything that takes time
  session.stop();
  filesystem.stop();
  return std::nullopt;
}

std::optional<DaemonError> serve_store(Store& store, const DaemonOptions& options,
                                       const std::function<void()>& on_ready) {
  if (const Status prepared = prepare_base(store, options.profiles); !prepared) {
    return DaemonError{kExitUnavailable,
                       fmt::format("cannot write to store '{}': {}; nothing was mounted",
                                   options.store_dir, std::strerror(prepared.error().code()))};
  }
  sweep_ended_layers(store.layers(), options.layer_keep.count());
  const auto run_folder = RunFolder::make(options, compile_routes(options.profiles));
  if (!run_folder) {  // a mount of this path in another namespace has it, or we may not write there
    spdlog::warn(
        "cannot use run folder '{}': {}; jobs take the routes that libcacheshim.so has built in",
        options.run_dir, std::strerror(run_folder.error().code()));
  }
  const std::string layers =
      options.layers_dir.empty() ? options.store_dir + "/.cacheshim/layers" : options.layers_dir;
  const std::string shown = shown_path(options);
  Filesystem filesystem(store, options.profiles,
                        {.shown_path = shown,
                         .layers_dir = layers,
                         .store_dir = options.store_dir,
                         .run_dir = options.run_dir,
                         .publish = options.publish,
                         .watch = options.watch,
                         .job_idle = options.job_idle,
                         .layer_keep = options.layer_keep,
                         .flight_timeout = options.flight_timeout,
                         .owners = options.owners,
                         .cycle = options.cycle,
                         .gc = options.gc,
                         .gc_interval = options.gc_interval,
                         .allow = options.allow,
                         .verify_on_open = options.verify_on_open});
  return serve_mount(
      filesystem, options, [&] { record_mount_path(store, shown); }, on_ready);
}

std::optional<DaemonError> serve_overlay(const DaemonOptions& options,
                                         const std::function<void()>& on_ready) {
  auto opened = open_plain_overlay(*options.overlay);
  if (auto* error = std::get_if<DaemonError>(&opened)) return std::move(*error);
  auto& folders = std::get<PlainOverlay>(opened);
  // Without it there is no log, and `unmount` does not wait for the daemon's end.
  const auto run_folder = RunFolder::make(options, "");
  std::vector<int> lowers;
  for (const UniqueFd& lower : folders.lowers) lowers.push_back(lower.get());
  const Store store = Store::bare(std::move(folders.lowers.front()));
  const std::vector<Profile> no_profiles;
  Filesystem filesystem(store, no_profiles,
                        {.shown_path = shown_path(options),
                         .layers_dir = "",
                         .store_dir = "",
                         .run_dir = options.run_dir,
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
          filesystem.show_plain(lowers, std::move(folders.upper), std::move(folders.work));
      !shown) {
    return DaemonError{kExitUnavailable,
                       fmt::format("cannot read '{}': {}; nothing was mounted",
                                   served_folder(options), std::strerror(shown.error().code()))};
  }
  return serve_mount(
      filesystem, options, [] {}, on_ready);
}

}  // namespace

std::optional<DaemonError> serve(const DaemonOptions& options,
                                 const std::function<void()>& on_ready) {
  (void)block_signals();  // before there is a thread that could take them
  raise_file_limit();
  (void)::umask(022);
  if (options.overlay) return serve_overlay(options, on_ready);
  auto opened = Store::open(options.store_dir, options.layers_dir);
  if (const auto* error = std::get_if<StoreError>(&opened)) {
    return DaemonError{kExitUnavailable, error->message};
  }
  return serve_store(std::get<Store>(opened), options, on_ready);
}

}  // namespace cacheshim
