// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "common/unique_fd.h"
#include "fuse/transport/request_source.h"
#include "fuse/transport/wire.h"

namespace cacheshim {
namespace {

constexpr std::uint64_t kUnique = 42;

// Writes every reply to a descriptor, as ReceiveLoop does.
class DeviceSource final : public RequestSource {
 public:
  explicit DeviceSource(int device) : device_(device) {}
  void start() override {}
  void stop() override {}
  std::optional<ssize_t> reply(const iovec* parts, int count) override {
    return ::writev(device_, parts, count);
  }

 private:
  const int device_;
};

// A kind of source that wire.h does not know, and that needs a flag of FUSE_INIT. One request,
// kRequest, has come through it.
class OtherSource final : public RequestSource {
 public:
  static constexpr std::uint32_t kFlag = 1U << 20;
  static constexpr std::uint64_t kRequest = kUnique + 2;

  std::uint32_t init_flags2() const override { return kFlag; }
  void start() override { is_started = true; }
  void stop() override {}
  std::optional<ssize_t> reply(const iovec* parts, int /*count*/) override {
    fuse_out_header header;
    std::memcpy(&header, parts[0].iov_base, sizeof header);
    if (header.unique != kRequest) return std::nullopt;
    ++replies;
    return header.len;
  }
  char* reply_space(std::size_t size) override { return size <= sizeof space ? space : nullptr; }

  bool is_started = false;
  int replies = 0;
  char space[8] = {};
};

// The tests build the bytes of each request, and a pipe replaces /dev/fuse.
class WireTest : public ::testing::Test {
 protected:
  WireTest() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    kernel_ = UniqueFd(ends[0]);
    device_ = UniqueFd(ends[1]);
    sources_.push_back(std::make_unique<DeviceSource>(device_.get()));
    wire::use_sources(sources_);
  }
  ~WireTest() override { wire::use_sources({}); }

  // Adds an OtherSource before the device and returns it.
  OtherSource& add_other_source() {
    auto added = std::make_unique<OtherSource>();
    OtherSource& source = *added;
    sources_.insert(sources_.begin(), std::move(added));
    wire::use_sources(sources_);
    return source;
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

  // Sends a reply with `body` as libfuse does. Returns the body that the kernel receives.
  template <class Body>
  Body answer(Body body, std::uint64_t unique = kUnique) {
    fuse_out_header header{sizeof header + sizeof body, 0, unique};
    iovec parts[] = {{&header, sizeof header}, {&body, sizeof body}};
    EXPECT_EQ(wire::send(-1, parts, 2, nullptr), static_cast<ssize_t>(header.len));
    char got[256];
    EXPECT_EQ(::read(kernel_.get(), got, sizeof got), static_cast<ssize_t>(header.len));
    Body sent;
    std::memcpy(&sent, got + sizeof header, sizeof sent);
    return sent;
  }

  UniqueFd kernel_;
  UniqueFd device_;
  RequestSources sources_;
  std::array<char, 512> bytes_{};
};

// [0] major, [1] minor, [2] max_readahead, [3] flags, [4] flags2
using InitIn = std::array<std::uint32_t, 16>;
using InitOut = std::array<std::uint32_t, 16>;  // [3] flags, [8] flags2, [9] max_stack_depth
constexpr std::uint32_t kParallel = 1U << 18;
constexpr std::uint32_t kKills = 1U << 28;
constexpr std::uint32_t kGoesOn = 1U << 30;
constexpr std::uint32_t kPassthrough = 1U << 5;
constexpr std::uint32_t kOverIoUring = 1U << 9;

TEST_F(WireTest, AcceptsWhatTheKernelOffers) {
  request(FUSE_INIT, InitIn{7, 45, 0, kParallel | kKills | kGoesOn | 1, kPassthrough | 2});
  EXPECT_TRUE(wire::connect(true).can_pass_through);
  const InitOut sent = answer(InitOut{7, 31, 0, 8});
  EXPECT_EQ(sent[3], 8 | kParallel | kKills | kGoesOn);
  EXPECT_EQ(sent[8], kPassthrough);
  EXPECT_EQ(sent[9], 1U);
}

TEST_F(WireTest, RequestsNothingThatTheKernelDoesNotOffer) {
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

TEST_F(WireTest, RequestsNoRingsIfThereAreNone) {
  request(FUSE_INIT, InitIn{7, 45, 0, kGoesOn, kOverIoUring});
  EXPECT_FALSE(wire::connect(true).uses_io_uring) << "the kernel would wait for them";
  EXPECT_EQ(answer(InitOut{7, 31, 0, 0})[8], 0U);
}

TEST_F(WireTest, StartsASourceOnceTheKernelHasAgreedToIt) {
  const OtherSource& other = add_other_source();
  request(FUSE_INIT, InitIn{7, 45, 0, kGoesOn, OtherSource::kFlag | kOverIoUring});
  EXPECT_FALSE(wire::connect(true).uses_io_uring);
  EXPECT_FALSE(other.is_started) << "the kernel does not know yet";
  EXPECT_EQ(answer(InitOut{7, 31, 0, 0})[8], OtherSource::kFlag);
  EXPECT_TRUE(other.is_started);
}

TEST_F(WireTest, DoesNotStartASourceThatTheKernelDoesNotOffer) {
  const OtherSource& other = add_other_source();
  request(FUSE_INIT, InitIn{7, 45, 0, kParallel | kGoesOn, kOverIoUring});
  (void)wire::connect(true);
  EXPECT_EQ(answer(InitOut{7, 31, 0, 0})[8], 0U);
  EXPECT_FALSE(other.is_started);
}

TEST_F(WireTest, OffersRepliesToTheSourcesInTheirOrder) {
  const OtherSource& other = add_other_source();
  fuse_out_header header{sizeof header, 0, OtherSource::kRequest};
  iovec part{&header, sizeof header};
  EXPECT_EQ(wire::send(-1, &part, 1, nullptr), static_cast<ssize_t>(sizeof header));
  EXPECT_EQ(other.replies, 1);
  EXPECT_EQ(answer(InitOut{7})[0], 7U) << "the device gets only the second reply";
  EXPECT_EQ(other.replies, 1);
}

TEST_F(WireTest, ReturnsTheReplySpaceOfTheSourceThatHasOne) {
  OtherSource& other = add_other_source();
  EXPECT_EQ(wire::reply_space(sizeof other.space), other.space);
  EXPECT_EQ(wire::reply_space(sizeof other.space + 1), nullptr);
}

struct OpenOut {
  std::uint64_t fh;
  std::uint32_t flags, backing_id;
};
struct CreateOut {
  fuse_entry_out entry;
  OpenOut open;
};

TEST_F(WireTest, SendsTheBackingFileInTheReplyToAnOpen) {
  request(FUSE_OPEN, fuse_open_in{});
  wire::pass_through(7);
  const OpenOut sent = answer(OpenOut{3, 2, 0});
  EXPECT_EQ(sent.fh, 3U);
  EXPECT_EQ(sent.flags, 2U | 1U << 7);
  EXPECT_EQ(sent.backing_id, 7U);
  request(FUSE_OPEN, fuse_open_in{});
  EXPECT_EQ(answer(OpenOut{3, 2, 0}).flags, 2U) << "it is that request's alone";
}

TEST_F(WireTest, SendsTheBackingFileAtTheEndOfTheReplyToACreation) {
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

TEST_F(WireTest, RecognizesWritesThatKillSetIds) {
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
