// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "store/overlay/changes.h"
#include "store/overlay/layer_upkeep.h"
#include "store/overlay/overlay.h"
#include "store/sys/sys.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {

// Returns one family, "fam". Each directory in the family's directory is an entry. An entry is
// complete when it has a file "done-*", or a "*.so" as its only file. Names "tmp.*" are scratch
// names.
inline std::vector<Profile> test_profiles() {
  Profile profile;
  profile.name = "fam";
  EntryRule rule{PathPattern("*"), {}, {"done-*"}, {"*.so"}, {}, false, {"done-*"}, {}};
  profile.entries.push_back(std::move(rule));
  profile.classes.emplace_back(NameClass::kScratch, PathPattern("tmp.*"));
  profile.evidence = Evidence::kRun;
  return {profile};
}

// Counts the copy-ups that begin, and calls a function of the test at each step.
class CopyUpSteps final : public OverlayObserver {
 public:
  void copied_up(const std::string&, const struct stat&) override {}
  Status at_step(CopyUpStep step) override {
    if (step == CopyUpStep::kBegun) ++begun;
    return then ? then(step) : Status();
  }
  std::atomic<int> begun{0};
  std::function<Status(CopyUpStep)> then;
};

// An overlay over plain directories: scratch/base, and scratch/upper with scratch/work.
class OverlayTest : public ::testing::Test {
 protected:
  OverlayTest() { take_up_layer(overlay_); }

  // Loads the layer into `overlay`, as the next daemon does after a restart.
  void take_up_layer(Overlay& overlay) {
    overlay.set_layer(scratch_.open_dir("upper"), scratch_.open_dir("work"));
    const Status loaded = load_layer(overlay);
    EXPECT_TRUE(loaded) << loaded.error().code();
  }

  void put(const std::string& path, const std::string& text) {
    auto fd = changes::create_file(overlay_, path, O_WRONLY, 0644);
    ASSERT_TRUE(fd) << path << ": " << fd.error().code();
    ASSERT_TRUE(sys::write_all(fd->get(), text));
  }
  std::string get(const std::string& path) {
    const auto opened = overlay_.open(path, O_RDONLY);
    if (!opened) return "<none>";
    const auto text = sys::read_all(opened->fd.get());
    return text ? *text : "<error>";
  }
  std::vector<std::string> names(const std::string& path) {
    std::vector<std::string> names;
    if (const auto entries = overlay_.list(path)) {
      for (const ListedEntry& entry : *entries) names.push_back(entry.name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  using Names = std::vector<std::string>;

  Scratch scratch_;
  std::vector<Profile> profiles_ = test_profiles();
  EntryMap entries_{profiles_};
  Counters counters_;
  UniqueFd base_ = scratch_.open_dir("base");
  CopyUpSteps steps_;
  Overlay overlay_{{base_.get()}, entries_, counters_, &steps_};
};

}  // namespace cacheshim
