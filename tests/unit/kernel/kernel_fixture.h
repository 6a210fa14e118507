// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "fuse/control/control_directory.h"
#include "fuse/dispatch/operations.h"
#include "fuse/mount.h"
#include "fuse/transport/session.h"
#include "fuse/vfs/filesystem.h"
#include "store/base/store.h"
#include "tests/unit/kernel/fake_kernel.h"
#include "tests/unit/kernel/kernel_calls.h"
#include "tests/unit/support/overlay_fixture.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {

// A daemon that serves a store to a FakeKernel: receivers, dispatch, operations and services. It needs
// neither a mount nor root.
class FuseKernelTest : public ::testing::Test {
 protected:
  FuseKernelTest() {
    spdlog::set_level(spdlog::level::critical);  // refused requests are logged as errors
    auto connected = Session::connect(kernel_.take_device(), request_handler(filesystem_));
    session_ = std::move(std::get<std::unique_ptr<Session>>(connected));
    mount_.start(session_->device(), [this](const Baton& baton) { filesystem_.names.reap(baton); });
    session_->start({.threads = 2, .use_rings = false, .on_end = [] {}});
    EXPECT_EQ(kernel_.init(), 0);
  }
  ~FuseKernelTest() override {
    end();
    (void)::umask(umask_);
  }

  // Ends the session in the same order as serve_mount().
  void end() {
    if (session_ == nullptr) return;
    mount_.fail_waits();
    mount_.finish_tasks();
    kernel_.disconnect();
    session_->stop();
    mount_.stop();
    session_.reset();
  }

  // Creates a job's view and returns its root.
  std::uint64_t view_of(const std::string& job) {
    const auto jobs = calls_.lookup(FUSE_ROOT_ID, ".jobs");
    EXPECT_TRUE(jobs);
    const auto view = calls_.mkdir(*jobs, job);
    EXPECT_TRUE(view) << view.error().code();
    return view ? *view : 0;
  }

  // Polls until `is_there` returns true. Returns false if it does not within 20 s.
  static bool becomes_true(const std::function<bool()>& is_there) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!is_there()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  static std::vector<Profile> profiles() {
    std::vector<Profile> profiles = test_profiles();
    profiles.front().classes.emplace_back(NameClass::kBaton, PathPattern("baton"));
    return profiles;
  }
  static MountOptions options(const Scratch& scratch) {
    return {.mount_point = "/nowhere",
            .layers_dir = scratch / "store/.cacheshim/layers",
            .store_dir = scratch / "store",
            .run_dir = "",
            .routes = "",
            .publish = PublishPolicy::kComplete,
            .watch = WatchMode::kNone,
            .job_idle = std::chrono::hours(1),
            .layer_keep = std::chrono::hours(1),
            .flight_timeout = std::chrono::seconds(0),
            .owners = {},
            .cycle = "",
            .gc = {},
            .gc_interval = std::chrono::hours(1),
            .allow = {},
            .verify_on_open = false};
  }
  static Store open_store(const Scratch& scratch) {
    (void)scratch.open_dir("store/fam");
    return std::get<Store>(Store::open(scratch / "store", ""));
  }

  const mode_t umask_ = ::umask(0);  // new objects get exactly the mode that the caller passes
  Scratch scratch_;
  const std::vector<Profile> profiles_ = profiles();
  const Store store_ = open_store(scratch_);
  Mount mount_{store_, profiles_, options(scratch_)};
  ControlDirectory control_{mount_};
  Filesystem filesystem_{mount_, control_};
  FakeKernel kernel_;
  KernelCalls calls_{kernel_};
  std::unique_ptr<Session> session_;
};

}  // namespace cacheshim
