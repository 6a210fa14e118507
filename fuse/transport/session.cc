// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/session.h"

#define FUSE_USE_VERSION 314
#include <fcntl.h>
#include <fmt/core.h>
#include <fuse_lowlevel.h>
#include <spdlog/spdlog.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/exit_codes.h"
#include "common/names.h"
#include "fuse/transport/connection_abort.h"
#include "fuse/transport/own_mount.h"
#include "fuse/transport/wire.h"
#include "store/sys/sys.h"
#include "store/threads/lock_ranks.h"

namespace cacheshim {
namespace {

constexpr const char* kDevice = "/dev/fuse";

DaemonError unavailable(std::string message) { return {kExitUnavailable, std::move(message)}; }

// libfuse requires this function, but does not call it.
ssize_t read_request(int fd, void* buffer, std::size_t size, void* /*userdata*/) {
  return ::read(fd, buffer, size);
}

ssize_t splice_reply(int from, off_t* from_offset, int to, off_t* to_offset, std::size_t length,
                     unsigned flags, void* /*userdata*/) {
  require_no_lock();
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer knows that a write(2) happens before another thread's read from the same file, but does not know
  // splice(2). This write tells ThreadSanitizer that a file's data are sent before another thread reads the file's
  // RELEASE.
  (void)!::write(to, "", 0);
#endif
  return ::splice(from, from_offset, to, to_offset, length, flags);
}

std::string device_refusal(int code) {
  const char* advice = "";
  if (code == ENOENT) {
    advice = " (load the kernel's module 'fuse', or start the container with --device /dev/fuse)";
  } else if (code == EPERM) {
    advice = " (a container has to be started with --device /dev/fuse)";
  } else if (code == EACCES) {
    advice = " (its mode is usually 0666; ask the administrator, or run as root)";
  } else if (code == ENODEV || code == ENXIO) {
    advice = " (the kernel has no FUSE: load its module 'fuse')";
  }
  return fmt::format("cannot open {}: {}{}; nothing was mounted", kDevice, std::strerror(code),
                     advice);
}

std::string mount_refusal(const std::string& mount_point, int code) {
  std::string why = std::strerror(code);
  if (code == EPERM) why += " (root, or `cacheshim run --store`, can mount)";
  return fmt::format("cannot mount at '{}': {}; nothing was mounted", mount_point, why);
}

}  // namespace

std::variant<std::unique_ptr<Session>, DaemonError> Session::mount(const DaemonOptions& options,
                                                                   const RequestHandler& handler) {
  const std::string& mount_point = options.mount_point;
  auto device = sys::open_path(kDevice, O_RDWR);
  if (!device) return unavailable(device_refusal(device.error().code()));
  auto connected = connect(*std::move(device), handler);
  auto* const session = std::get_if<std::unique_ptr<Session>>(&connected);
  if (session == nullptr) return connected;
  const std::string data =
      fmt::format("fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
                  (*session)->fd_, ::getuid(), ::getgid());
  if (::mount(options.source.c_str(), mount_point.c_str(), std::string(kFilesystemType).c_str(),
              options.mount_flags, data.c_str()) == -1) {
    return unavailable(mount_refusal(mount_point, errno));
  }
  (*session)->mount_point_ = mount_point;
  (*session)->detached_ = false;
  struct statx st {};
  // AT_STATX_DONT_SYNC: no thread answers requests yet.
  if (::statx(AT_FDCWD, mount_point.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0) {
    auto control = open_abort(::makedev(st.stx_dev_major, st.stx_dev_minor));
    if (control) {
      (*session)->abort_ = *std::move(control);
      (*session)->guard_.emplace((*session)->abort_.get());
    }
  }
  return connected;
}

std::variant<std::unique_ptr<Session>, DaemonError> Session::connect(
    UniqueFd device, const RequestHandler& handler) {
  std::unique_ptr<Session> session(new Session);
  std::string program = "cacheshim";
  char* argv[] = {program.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, argv);
  session->session_ =
      fuse_session_new(&args, &handler.operations, sizeof(fuse_lowlevel_ops), handler.userdata);
  fuse_opt_free_args(&args);  // fuse_session_new() has added an argument
  // The sources receive the requests; libfuse's replies go through wire::send().
  fuse_custom_io io{};
  io.writev = wire::send;
  io.read = read_request;
  io.splice_send = splice_reply;
  if (session->session_ == nullptr ||
      fuse_session_custom_io(session->session_, &io, device.get()) != 0) {
    return unavailable("cannot set up libfuse; nothing was mounted");
  }
  session->fd_ = device.release();  // it belongs to the session from here on
  return session;
}

Session::~Session() {
  stop();
  wire::use_sources({});
  sources_.clear();
  if (session_ != nullptr) fuse_session_destroy(session_);
}

void Session::start(const SourceOptions& options) {
  sources_ = make_sources(session_, mount_point_, options);
  wire::use_sources(sources_);
  for (const auto& source : sources_) {
    if (source->init_flags2() == 0) source->start();  // wire::send() starts the others
  }
}

void Session::detach() {
  if (std::exchange(detached_, true)) return;
  // Usually the mount is gone already; own_mount::detach() ignores the resulting error.
  own_mount::detach(mount_point_);
}

void Session::stop() {
  detach();
  // Stops the last source first, because it receives FUSE_INIT. The reply to FUSE_INIT starts the other sources, which
  // must not be started after they have been stopped.
  std::for_each(sources_.rbegin(), sources_.rend(), [](const auto& source) { source->stop(); });
}

void Session::abort() const {
  const Status aborted = abort_ ? abort_connection(abort_.get()) : Errno(EPERM);
  if (aborted) return;
  spdlog::warn("cannot abort the connection of '{}': {}; processes that have files of it open may hang",
               mount_point_, std::strerror(aborted.error().code()));
}

}  // namespace cacheshim
