// SPDX-License-Identifier: Apache-2.0
// Fuzzes the daemon from the parser of the kernel's messages down to the layer. The input is a series of messages. Two
// bytes before each message give its length. If the highest bit of these bytes is clear, the fuzzer writes this length
// into the message's header; otherwise the header's own length stays.
#include <linux/fuse.h>

#include <algorithm>
#include <cstring>

#include "tests/fuzz/fuzzed_mount.h"
#include "tests/fuzz/target.h"

namespace cacheshim::fuzz {
namespace {

constexpr int kMostMessages = 64;
constexpr std::uint64_t kMostAllocated = 1 << 16;  // bytes; RLIMIT_FSIZE does not limit every fallocate(2)
constexpr unsigned kKeepsLength = 0x8000;

template <class Body, class Change>
void patch(std::string& message, std::size_t offset, Change&& change) {
  Body body;
  if (message.size() < offset + sizeof body) return;
  std::memcpy(&body, message.data() + offset, sizeof body);
  change(body);
  std::memcpy(message.data() + offset, &body, sizeof body);
}

std::string take_message(std::string_view& input) {
  const unsigned lengths = static_cast<unsigned char>(input[0]) |
                           static_cast<unsigned>(static_cast<unsigned char>(input[1])) << 8;
  input.remove_prefix(2);
  std::string message(input.substr(0, lengths & ~kKeepsLength));
  input.remove_prefix(message.size());
  patch<fuse_in_header>(message, 0, [&](fuse_in_header& header) {
    if ((lengths & kKeepsLength) == 0) header.len = static_cast<std::uint32_t>(message.size());
    if (header.opcode != FUSE_FALLOCATE) return;
    patch<fuse_fallocate_in>(message, sizeof header, [](fuse_fallocate_in& body) {
      body.length = std::min(body.length, kMostAllocated);
    });
  });
  return message;
}

}  // namespace
}  // namespace cacheshim::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cacheshim::fuzz;
  [[maybe_unused]] static const bool is_confined = (confine(), true);
  FuzzedMount mount;
  std::string_view input = text_of(data, size);
  for (int count = 0; input.size() >= 2 && count < kMostMessages; ++count) {
    mount.deliver(take_message(input));
  }
  return 0;
}
