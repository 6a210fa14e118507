// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "store/overlay/changes.h"
#include "store/publish/publisher.h"
#include "tests/unit/support/overlay_fixture.h"

namespace cacheshim {

// A publishing job with settings for tests.
class Hooks : public PublishHooks {
 public:
  bool is_being_written(dev_t, ino_t inode) override { return writing.contains(inode); }
  bool wait_until_closed(dev_t, ino_t inode) override { return !writing.contains(inode); }
  bool note_conflict(const std::string& unit) override { return conflicts.insert(unit).second; }
  bool note_why_unpublished(const std::string& unit, const std::string& reason) override {
    return std::exchange(kept[unit], reason) != reason;
  }
  std::string why_refused() const override {
    return refuse_at_check > 0 && ++checks >= refuse_at_check ? "since then" : refused;
  }
  PublishingJob identity() const override {
    if (once_compared) std::exchange(once_compared, nullptr)();
    return {"j1", "2", 20001};
  }
  bool has_one_user() const override { return is_private; }
  void published(const std::string& path, const struct stat&) override { paths.insert(path); }

  bool is_private = false;
  std::set<ino_t> writing;
  std::set<std::string> paths;
  std::set<std::string> conflicts;
  std::map<std::string, std::string> kept;
  std::string refused;
  int refuse_at_check = 0;
  mutable int checks = 0;
  // Called once, after a unit was compared with the base's unit of the same name.
  mutable std::function<void()> once_compared;
};

// Publishes from the overlay's layer into the store "base".
class PublisherTest : public OverlayTest {
 protected:
  PublisherTest() {
    auto opened = Store::open(scratch_ / "base", "");
    store_ = std::make_unique<Store>(std::get<Store>(std::move(opened)));
    publisher_ = std::make_unique<Publisher>(*store_, entries_, counters_);
    EXPECT_TRUE(changes::make_dir(overlay_, "fam", 0755));
  }
  void begin(const std::string& key) {
    ASSERT_TRUE(changes::make_dir(overlay_, "fam/" + key, 0755));
  }
  PublishReport publish(const std::string& unit) {
    return publisher_->publish(overlay_, unit, hooks_);
  }

  std::unique_ptr<Store> store_;
  std::unique_ptr<Publisher> publisher_;
  Hooks hooks_;
};

}  // namespace cacheshim
