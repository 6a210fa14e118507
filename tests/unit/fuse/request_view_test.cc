// SPDX-License-Identifier: Apache-2.0
#include "fuse/transport/request_view.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace cacheshim {
namespace {

constexpr std::uint32_t kTmpfile = 51;
constexpr std::uint32_t k128KiB = 128 * 1024;

// Returns a request: the header, `body`, and `more` additional bytes.
template <class Body>
std::vector<char> request(std::uint32_t opcode, const Body& body, std::size_t more = 0) {
  fuse_in_header header{};
  header.len = static_cast<std::uint32_t>(sizeof header + sizeof body + more);
  header.opcode = opcode;
  header.pid = 77;
  std::vector<char> bytes(header.len);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &body, sizeof body);
  return bytes;
}

RequestView view(std::vector<char>& bytes) { return {bytes.data(), bytes.size()}; }

bool may_take_long(std::vector<char> bytes) { return view(bytes).may_take_long(); }

std::vector<char> read_of(std::uint32_t size) {
  fuse_read_in body{};
  body.size = size;
  return request(FUSE_READ, body);
}

TEST(RequestView, NamesTheWaitingThread) {
  auto bytes = request(FUSE_GETATTR, fuse_getattr_in{});
  EXPECT_EQ(view(bytes).client(), 77);
}

TEST(RequestView, SyncsAndCopiesMayLast) {
  EXPECT_TRUE(may_take_long(request(FUSE_FSYNC, fuse_fsync_in{})));
  EXPECT_TRUE(may_take_long(request(FUSE_FSYNCDIR, fuse_fsync_in{})));
  EXPECT_TRUE(may_take_long(request(FUSE_FALLOCATE, fuse_fallocate_in{})));
  EXPECT_TRUE(may_take_long(request(FUSE_COPY_FILE_RANGE, fuse_copy_file_range_in{})));
  EXPECT_FALSE(may_take_long(request(FUSE_GETATTR, fuse_getattr_in{})));
  EXPECT_FALSE(may_take_long(request(FUSE_OPEN, fuse_open_in{})));
}

TEST(RequestView, OnlySizeChangesMayTakeLong) {
  fuse_setattr_in change{};
  change.valid = FATTR_MODE;
  EXPECT_FALSE(may_take_long(request(FUSE_SETATTR, change)));
  change.valid |= FATTR_SIZE;
  EXPECT_TRUE(may_take_long(request(FUSE_SETATTR, change)));
}

TEST(RequestView, RequestsWithManyBytesMayLast) {
  EXPECT_FALSE(may_take_long(read_of(k128KiB)));
  EXPECT_TRUE(may_take_long(read_of(k128KiB + 1)));
  EXPECT_FALSE(may_take_long(request(FUSE_WRITE, fuse_write_in{}, 4096)));
  EXPECT_TRUE(may_take_long(request(FUSE_WRITE, fuse_write_in{}, k128KiB)));
}

TEST(RequestView, RecognizesTheKernelsReadAheadByItsSize) {
  auto ahead = read_of(k128KiB);
  auto small = read_of(4096);
  auto large = read_of(k128KiB + 4096);
  auto other = request(FUSE_GETATTR, fuse_getattr_in{});
  EXPECT_TRUE(view(ahead).is_read_ahead());
  EXPECT_FALSE(view(small).is_read_ahead());
  EXPECT_FALSE(view(large).is_read_ahead());
  EXPECT_FALSE(view(other).is_read_ahead());
}

TEST(RequestView, TreatsOTmpfileAsTheCreationOfAnUnusedName) {
  auto bytes = request(kTmpfile, fuse_create_in{}, 2);
  view(bytes).translate();
  fuse_in_header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  EXPECT_EQ(header.opcode, std::uint32_t{FUSE_CREATE});
  EXPECT_STREQ(bytes.data() + sizeof header + sizeof(fuse_create_in), kTmpfileName);

  auto untouched = request(FUSE_MKDIR, fuse_mkdir_in{}, 2);
  const auto before = untouched;
  view(untouched).translate();
  EXPECT_EQ(untouched, before);
}

}  // namespace
}  // namespace cacheshim
