// SPDX-License-Identifier: Apache-2.0
#include "fuse/session.h"

#include "fuse/filesystem.h"
#include "fuse/operations.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "common/exit_codes.h"
#include "common/names.h"
#include "store/sys.h"

namespace cacheshim {
namespace {

constexpr const char* kDevice = "/dev/fuse";
constexpr int kWakeSignal = SIGUSR1;  // to a worker that waits in read(2)

DaemonError unavailable(std::string message) { return {kExitUnavailable, std::move(message)}; }

std::string mount_refusal(const std::string& mount_point, int code) {
  std::string why = std::strerror(code);
  if (code == EPERM) why += " (root, or `cacheshim run --store`, can mount)";
  return fmt::format("cannot mount at '{}': {}; nothing was mounted", mount_point, why);
}

}  // namespace

std::variant<std::unique_ptr<Session>, DaemonError> Session::mount(const std::string& mount_point,
                                                                   unsigned long flags,
                                                                   Filesystem& filesystem) {
  auto device = sys::open_path(kDevice, O_RDWR);
  if (!device) {
    return unavailable(fmt::format("cannot open {}: {}; nothing was mounted", kDevice,
                                   std::strerror(device.error().code())));
  }
  std::unique_ptr<Session> session(new Session);
  session->mount_point_ = mount_point;
  std::string program = "cacheshim";
  char* argv[] = {program.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, argv);
  session->session_ =
      fuse_session_new(&args, &fuse_operations(), sizeof(fuse_lowlevel_ops), &filesystem);
  if (session->session_ == nullptr)
    return unavailable("cannot set up libfuse; nothing was mounted");
  const std::string data =
      fmt::format("fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
                  device->get(), ::getuid(), ::getgid());
  if (::mount("cacheshim", mount_point.c_str(), std::string(kFilesystemType).c_str(),
              flags | MS_NOSUID | MS_NODEV, data.c_str()) == -1) {
    session->detached_ = true;
    return unavailable(mount_refusal(mount_point, errno));
  }
  session->fd_ = device->release();  // the session's from here on
  const std::string fd_path = fmt::format("/dev/fd/{}", session->fd_);
  if (fuse_session_mount(session->session_, fd_path.c_str()) != 0) {
    return unavailable(fmt::format("libfuse cannot serve '{}'; it was unmounted", mount_point));
  }
  return session;
}

Session::~Session() {
  stop();
  if (session_ != nullptr) fuse_session_destroy(session_);
}

void Session::start(unsigned threads, std::function<void()> on_end) {
  on_end_ = std::move(on_end);
  struct sigaction wake {};
  wake.sa_handler = [](int) {};                    // without SA_RESTART: read(2) returns EINTR
  (void)::sigaction(kWakeSignal, &wake, nullptr);  // cannot fail for a valid signal
  working_ = threads;
  for (unsigned i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

void Session::work() {
  fuse_buf buffer{};
  while (!stopping_ && fuse_session_exited(session_) == 0) {
    const int received = fuse_session_receive_buf(session_, &buffer);
    if (received == -EINTR || received == -EAGAIN) continue;
    if (received == 0 || received == -ENODEV) break;  // unmounted
    if (received < 0) {
      spdlog::error("reading {} failed: {}; the mount ends", kDevice, std::strerror(-received));
      break;
    }
    fuse_session_process_buf(session_, &buffer);
  }
  std::free(buffer.mem);  // libfuse allocated it
  if (--working_ == 0) on_end_();
}

void Session::stop() {
  if (!detached_) {
    detached_ = true;
    // EINVAL: it is unmounted already, which is how most sessions end.
    (void)::umount2(mount_point_.c_str(), MNT_DETACH);
  }
  stopping_ = true;
  while (working_ > 0) {  // a worker may be between its look at the flag and read(2)
    for (std::thread& worker : workers_) (void)::pthread_kill(worker.native_handle(), kWakeSignal);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

}  // namespace cacheshim
