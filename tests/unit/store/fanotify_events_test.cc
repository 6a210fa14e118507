// SPDX-License-Identifier: Apache-2.0
#include "store/base/fanotify_events.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cacheshim {
namespace {

std::string event_of(std::uint32_t length, std::uint64_t mask) {
  fanotify_event_metadata head{};
  head.event_len = length;
  head.mask = mask;
  std::string bytes(length, 'i');
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

TEST(FanotifyEvents, AnEventAfterOneOf60BytesIsAligned) {
  alignas(8) char buffer[144];
  const std::string events = event_of(60, 1) + event_of(60, 2) + event_of(24, 3);
  std::memcpy(buffer, events.data(), events.size());
  std::vector<std::uint64_t> masks;
  for_each_event({buffer, events.size()}, [&](const fanotify_event_metadata& event) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&event) % alignof(fanotify_event_metadata), 0U);
    masks.push_back(event.mask);
  });
  EXPECT_EQ(masks, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(FanotifyEvents, AnEventThatIsLongerThanTheBytesEndsThem) {
  const std::string events = event_of(24, 1) + event_of(60, 2).substr(0, 40);
  int count = 0;
  for_each_event(events, [&](const fanotify_event_metadata&) { ++count; });
  for_each_event(event_of(24, 1).substr(0, 10), [&](const fanotify_event_metadata&) { ++count; });
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace cacheshim
