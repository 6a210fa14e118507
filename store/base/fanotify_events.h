// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/fanotify.h>

#include <cstddef>
#include <cstring>
#include <string_view>

namespace cacheshim {

// Enough for the longest event, which has one handle and one name.
constexpr std::size_t kMostEventBytes = 4096;

// Calls `take` with each event in `bytes`, which read(2) has returned. An event's information records follow it in
// memory. Copies each event, because fanotify_event_metadata needs an alignment of 8 bytes, but the kernel pads an
// event only to a multiple of 4 bytes.
template <class Take>
void for_each_event(std::string_view bytes, Take&& take) {
  alignas(fanotify_event_metadata) char event[kMostEventBytes] = {};
  fanotify_event_metadata head;
  while (bytes.size() >= sizeof head) {
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.event_len < sizeof head || head.event_len > bytes.size()) return;
    if (head.event_len <= sizeof event) {
      std::memcpy(event, bytes.data(), head.event_len);
      take(*reinterpret_cast<const fanotify_event_metadata*>(event));
    }
    bytes.remove_prefix(head.event_len);
  }
}

}  // namespace cacheshim
