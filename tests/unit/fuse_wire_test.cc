// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "common/unique_fd.h"
#include "fuse/transport/wire.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kUnique = 42;

// Requests are made by hand, and a pipe plays /dev/fuse.
class WireTest : public ::testing::Test {
 protected:
  WireTest() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    kernel_ = UniqueFd(ends[0]);
    device_ = UniqueFd(ends[1]);
  }

  template <class Body>
  void request(std::uint32_t opcode, const Body& body) {
    const std::uint32_t length = sizeof(fuse_in_header) + sizeof body;
    fuse_in_header header{};
    header.len = length;
    header.opcode = opcode;
    header.unique = kUnique;
    std::memcpy(bytes_.data(), &header, sizeof header);
    std::memcpy(bytes_.data() + sizeof header, &body, sizeof body);
    wire::begin_request(bytes_.data());
  }

  // What the kernel gets where libfuse answers with `body`.
  template <class Body>
  Body answer(Body body, std::uint64_t unique = kUnique) {
    fuse_out_header header{sizeof header + sizeof body, 0, unique};
    iovec parts[] = {{&header, sizeof header}, {&body, sizeof body}};
    EXPECT_EQ(wire::send(device_.get(), parts, 2, nullptr), static_cast<ssize_t>(header.len));
    char got[256];
    EXPECT_EQ(::read(kernel_.get(), got, sizeof got), static_cast<ssize_t>(header.len));
    Body sent;
    std::memcpy(&sent, got + sizeof header, sizeof sent);
    return sent;
  }

  UniqueFd kernel_;
  UniqueFd device_;
  std::array<char, 512> bytes_{};
};

using InitIn = std::array<std::uint32_t, 16>;   // major, minor, max_readahead, flags, flags2, …
using InitOut = std::array<std::uint32_t, 16>;  // …, [3] flags, [8] flags2, [9] max_stack_depth
constexpr std::uint32_t kParallel = 1U << 18;
constexpr std::uint32_t kKills = 1U << 28;
constexpr std::uint32_t kGoesOn = 1U << 30;
constexpr std::uint32_t kPassthrough = 1U << 5;
constexpr std::uint32_t kOverIoUring = 1U << 9;

TEST_F(WireTest, TakesUpWhatTheKernelOffers) {
  request(FUSE_INIT, InitIn{7, 45, 0, kParallel | kKills | kGoesOn | 1, kPassthrough | 2});
  EXPECT_TRUE(wire::connect(true).can_pass_through);
  const InitOut sent = answer(InitOut{7, 31, 0, 8});
  EXPECT_EQ(sent[3], 8 | kParallel | kKills | kGoesOn);
  EXPECT_EQ(sent[8], kPassthrough);
  EXPECT_EQ(sent[9], 1U);
}

TEST_F(WireTest, AsksForNothingThatTheKernelDoesNotOffer) {
  request(FUSE_INIT, InitIn{7, 31, 0, kParallel | 1, kPassthrough});
  EXPECT_FALSE(wire::connect(true).can_pass_through)
      << "flags2 means nothing without FUSE_INIT_EXT";
  const InitOut sent = answer(InitOut{7, 31, 0, 8});
  EXPECT_EQ(sent[3], 8 | kParallel);
  EXPECT_EQ(sent[8], 0U);
  EXPECT_EQ(sent[9], 0U);
}

TEST_F(WireTest, DoesNotAskForPassthroughWithoutPrivilege) {
  request(FUSE_INIT, InitIn{7, 45, 0, kKills | kGoesOn, kPassthrough});
  EXPECT_FALSE(wire::connect(false).can_pass_through);
  const InitOut sent = answer(InitOut{7, 31, 0, 0});
  EXPECT_EQ(sent[3], kKills);
  EXPECT_EQ(sent[8], 0U);
}

TEST_F(WireTest, AsksForNoRingsWhereThereAreNone) {
  request(FUSE_INIT, InitIn{7, 45, 0, kGoesOn, kOverIoUring});
  EXPECT_FALSE(wire::connect(true).uses_io_uring) << "the kernel would wait for them";
  EXPECT_EQ(answer(InitOut{7, 31, 0, 0})[8], 0U);
}

struct OpenOut {
  std::uint64_t fh;
  std::uint32_t flags, backing_id;
};
struct CreateOut {
  fuse_entry_out entry;
  OpenOut open;
};

TEST_F(WireTest, TellsOfTheBackingFileInTheAnswerToItsOpen) {
  request(FUSE_OPEN, fuse_open_in{});
  wire::pass_through(7);
  const OpenOut sent = answer(OpenOut{3, 2, 0});
  EXPECT_EQ(sent.fh, 3U);
  EXPECT_EQ(sent.flags, 2U | 1U << 7);
  EXPECT_EQ(sent.backing_id, 7U);
  request(FUSE_OPEN, fuse_open_in{});
  EXPECT_EQ(answer(OpenOut{3, 2, 0}).flags, 2U) << "it is that request's alone";
}

TEST_F(WireTest, TellsOfItAtTheEndOfTheAnswerToACreation) {
  request(FUSE_CREATE, fuse_create_in{});
  wire::pass_through(7);
  CreateOut reply{};
  reply.entry.nodeid = 9;
  const CreateOut sent = answer(reply);
  EXPECT_EQ(sent.entry.nodeid, 9U);
  EXPECT_EQ(sent.open.backing_id, 7U);
}

TEST_F(WireTest, LeavesAnswersToOtherRequestsAlone) {
  request(FUSE_OPEN, fuse_open_in{});
  wire::pass_through(7);
  EXPECT_EQ(answer(OpenOut{3, 2, 0}, kUnique + 1).flags, 2U);
}

TEST_F(WireTest, KnowsWhichWritesKillSetIds) {
  fuse_write_in write{};
  request(FUSE_WRITE, write);
  EXPECT_FALSE(wire::kills_set_ids());
  write.write_flags = 1U << 2;
  request(FUSE_WRITE, write);
  EXPECT_TRUE(wire::kills_set_ids());
  fuse_setattr_in resize{};
  resize.valid = 1U << 11;
  request(FUSE_SETATTR, resize);
  EXPECT_TRUE(wire::kills_set_ids());
  request(FUSE_GETATTR, resize);
  EXPECT_FALSE(wire::kills_set_ids());
}

}  // namespace
}  // namespace cacheshim
