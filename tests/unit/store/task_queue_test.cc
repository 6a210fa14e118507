// SPDX-License-Identifier: Apache-2.0
#include "store/threads/task_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>

namespace cacheshim {
namespace {

// Calls a function when a task that holds it is destroyed.
class AtEnd {
 public:
  explicit AtEnd(std::function<void()> call) : call_(std::move(call)) {}
  ~AtEnd() { call_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  std::function<void()> call_;
};

// The destructors of objects that a task holds may take locks and may post other tasks.
TEST(TaskQueue, ATaskIsDestroyedWithoutTheQueuesLock) {
  TaskQueue queue(1);
  std::promise<void> posted;
  std::promise<bool> in_time;
  std::thread poster;
  auto held = std::make_shared<AtEnd>([&] {
    poster = std::thread([&] {
      queue.post([] {});
      posted.set_value();
    });
    in_time.set_value(posted.get_future().wait_for(std::chrono::seconds(5)) ==
                      std::future_status::ready);
  });
  queue.post([held = std::move(held)] {});
  EXPECT_TRUE(in_time.get_future().get());
  queue.stop();
  poster.join();
}

}  // namespace
}  // namespace cacheshim
