// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fuse/nodes/node_ref.h"
#include "tests/unit/kernel/kernel_fixture.h"

// Tests that the daemon refuses requests that the kernel never sends, and continues to serve
// others.
namespace cacheshim {
namespace {

template <class Body>
std::string empty() {
  return bytes_of(Body{});
}

// Returns all requests that have arguments and get a reply, except FUSE_INIT, by opcode. All bytes of the arguments are
// zero, except those of names.
std::map<std::uint32_t, std::string> empty_requests() {
  const std::string name = name_bytes("name");
  return {{FUSE_LOOKUP, name},
          {FUSE_GETATTR, empty<fuse_getattr_in>()},
          {FUSE_SETATTR, empty<fuse_setattr_in>()},
          {FUSE_SYMLINK, name + name},
          {FUSE_MKNOD, empty<fuse_mknod_in>() + name},
          {FUSE_MKDIR, empty<fuse_mkdir_in>() + name},
          {FUSE_UNLINK, name},
          {FUSE_RMDIR, name},
          {FUSE_RENAME, empty<fuse_rename_in>() + name + name},
          {FUSE_RENAME2, empty<fuse_rename2_in>() + name + name},
          {FUSE_LINK, empty<fuse_link_in>() + name},
          {FUSE_OPEN, empty<fuse_open_in>()},
          {FUSE_READ, empty<fuse_read_in>()},
          {FUSE_WRITE, empty<fuse_write_in>()},
          {FUSE_RELEASE, empty<fuse_release_in>()},
          {FUSE_FSYNC, empty<fuse_fsync_in>()},
          {FUSE_SETXATTR, std::string(FUSE_COMPAT_SETXATTR_IN_SIZE, '\0') + name},
          {FUSE_GETXATTR, empty<fuse_getxattr_in>() + name},
          {FUSE_LISTXATTR, empty<fuse_getxattr_in>()},
          {FUSE_REMOVEXATTR, name},
          {FUSE_FLUSH, empty<fuse_flush_in>()},
          {FUSE_OPENDIR, empty<fuse_open_in>()},
          {FUSE_READDIR, empty<fuse_read_in>()},
          {FUSE_READDIRPLUS, empty<fuse_read_in>()},
          {FUSE_RELEASEDIR, empty<fuse_release_in>()},
          {FUSE_FSYNCDIR, empty<fuse_fsync_in>()},
          {FUSE_GETLK, empty<fuse_lk_in>()},
          {FUSE_SETLK, empty<fuse_lk_in>()},
          {FUSE_SETLKW, empty<fuse_lk_in>()},
          {FUSE_CREATE, empty<fuse_create_in>() + name},
          {FUSE_IOCTL, empty<fuse_ioctl_in>()},
          {FUSE_FALLOCATE, empty<fuse_fallocate_in>()},
          {FUSE_LSEEK, empty<fuse_lseek_in>()},
          {FUSE_COPY_FILE_RANGE, empty<fuse_copy_file_range_in>()}};
}

// Returns true if libfuse always refuses the request, because the daemon does not implement the operation.
bool is_unsupported(std::uint32_t opcode) { return opcode == FUSE_READDIRPLUS; }
// Returns true if the daemon ignores the request's node.
bool ignores_node(std::uint32_t opcode) { return opcode == FUSE_IOCTL; }

class FuseKernelMalformed : public FuseKernelTest {
 protected:
  FuseKernelMalformed() { EXPECT_TRUE(calls_.put(directory_, "file", "text")); }
  // Verifies after each test that the daemon still serves requests.
  void TearDown() override { EXPECT_TRUE(calls_.getattr(directory_)); }

  const std::uint64_t view_ = view_of("one");
  const std::uint64_t directory_ = *calls_.lookup(view_, "fam");
};

TEST_F(FuseKernelMalformed, ARequestThatIsTooShortIsRefused) {
  for (const auto& [opcode, whole] : empty_requests()) {
    if (is_unsupported(opcode)) continue;
    EXPECT_EQ(kernel_.call(opcode, directory_, "").error, EIO) << opcode;
    EXPECT_EQ(kernel_.call(opcode, directory_, whole.substr(0, whole.size() - 1)).error, EIO)
        << opcode;
  }
}

TEST_F(FuseKernelMalformed, ANameWithoutItsEndIsRefused) {
  for (const std::uint32_t opcode : {FUSE_LOOKUP, FUSE_UNLINK, FUSE_RMDIR, FUSE_REMOVEXATTR})
    EXPECT_EQ(kernel_.call(opcode, directory_, "file").error, EIO) << opcode;
  const std::string one_name = bytes_of(fuse_rename_in{directory_}) + name_bytes("file");
  EXPECT_EQ(kernel_.call(FUSE_RENAME, directory_, one_name).error, EIO);
  EXPECT_EQ(kernel_.call(FUSE_RENAME, directory_, one_name + "new").error, EIO);
}

TEST_F(FuseKernelMalformed, ALengthThatDoesNotMatchIsRefused) {
  fuse_in_header header{};
  header.unique = kernel_.next_number();
  header.opcode = FUSE_STATFS;
  header.nodeid = directory_;
  for (const std::uint32_t length : {0U, 39U, 41U, 4096U, 0xffffffffU}) {
    header.len = length;
    header.unique += 2000;
    kernel_.send_bytes(bytes_of(header));
    EXPECT_EQ(kernel_.wait_for(header.unique).error, EIO) << length;
  }
}

// A message that is shorter than a header has no complete request number, so there can be no reply.
TEST_F(FuseKernelMalformed, AMessageShorterThanAHeaderIsDropped) {
  for (const std::size_t size : {1U, 4U, 39U}) kernel_.send_bytes(std::string(size, 'x'));
  EXPECT_TRUE(calls_.getattr(directory_));
  EXPECT_EQ(kernel_.replies_to(0x7878787878787878), 0U);
}

TEST_F(FuseKernelMalformed, MissingDataIsNotRead) {
  const auto file = calls_.open(*calls_.lookup(directory_, "file"), O_RDWR);
  ASSERT_TRUE(file);
  fuse_write_in write{};
  write.fh = file->fh;
  for (const std::uint32_t size : {6U, 1U << 20, 0xffffffffU}) {
    write.size = size;
    EXPECT_EQ(kernel_.call(FUSE_WRITE, file->node, bytes_of(write) + "short").error, EIO);
  }
  const std::array<std::uint32_t, 2> value_of{1 << 30, 0};
  EXPECT_EQ(
      kernel_.call(FUSE_SETXATTR, file->node, bytes_of(value_of) + name_bytes("user.x")).error,
      EIO);
  kernel_.send(FUSE_BATCH_FORGET, 0, bytes_of(fuse_batch_forget_in{1 << 30, 0}));
  EXPECT_TRUE(calls_.release(*file));
}

TEST_F(FuseKernelMalformed, AReadOfMoreThanAnyKernelReadsIsRefused) {
  fuse_read_in read{};
  for (const std::uint32_t opcode : {FUSE_READ, FUSE_READDIR}) {
    for (const std::uint32_t size : {(16U << 20) + 1, 0xffffffffU}) {
      read.size = size;
      EXPECT_EQ(kernel_.call(opcode, directory_, bytes_of(read)).error, EIO) << opcode;
    }
  }
}

TEST_F(FuseKernelMalformed, AnUnknownNodeIsRefused) {
  const std::uint64_t far = 0xffffffffffffffff;
  for (const std::uint64_t node : {std::uint64_t{0}, std::uint64_t{4095}, std::uint64_t{500'000},
                                   std::uint64_t{0xffffffff}, far}) {
    for (const auto& [opcode, body] : empty_requests()) {
      if (is_unsupported(opcode) || ignores_node(opcode)) continue;
      EXPECT_EQ(kernel_.call(opcode, node, body).error, EIO) << opcode << " of node " << node;
    }
    const std::string names = name_bytes("file") + name_bytes("new");
    EXPECT_EQ(kernel_.call(FUSE_RENAME, directory_, bytes_of(fuse_rename_in{node}) + names).error,
              EIO);
    EXPECT_EQ(
        kernel_.call(FUSE_LINK, directory_, bytes_of(fuse_link_in{node}) + name_bytes("new")).error,
        EIO);
    calls_.forget(node, 1);
  }
}

// Requests for a node that the kernel has forgotten fail like those for an unknown node.
TEST_F(FuseKernelMalformed, AForgottenNodeIsUnknown) {
  const auto node = calls_.lookup(directory_, "file");
  calls_.forget(*node, 100);
  EXPECT_TRUE(becomes_true([&] { return calls_.getattr(*node).failed_with(EIO); }));
}

TEST_F(FuseKernelMalformed, AnUnknownHandleIsRefused) {
  const auto node = calls_.lookup(directory_, "file");
  const auto released = calls_.open(*node, O_RDONLY);
  ASSERT_TRUE(calls_.release(*released));
  for (const std::uint64_t fh :
       {released->fh, std::uint64_t{0}, std::uint64_t{500'000}, std::uint64_t{0xffffffff}}) {
    const OpenNode file{*node, fh};
    EXPECT_TRUE(calls_.read(file, 10).failed_with(EBADF)) << fh;
    EXPECT_TRUE(calls_.write(file, "x").failed_with(EBADF)) << fh;
    EXPECT_TRUE(calls_.release(file)) << fh;
    fuse_read_in list{};
    list.fh = fh;
    list.size = 100;
    EXPECT_EQ(kernel_.call(FUSE_READDIR, directory_, bytes_of(list)).error, EBADF) << fh;
    fuse_lk_in lock{};
    lock.fh = fh;
    EXPECT_EQ(kernel_.call(FUSE_SETLK, *node, bytes_of(lock)).error, EOPNOTSUPP) << fh;
  }
  // If a release had freed a handle twice, two opens would now get the same handle.
  EXPECT_NE(calls_.open(*node, O_RDONLY)->fh, calls_.open(*node, O_RDONLY)->fh);
}

// The fuzzer fuse_messages found that computing the end of an invalid range overflowed.
TEST_F(FuseKernelMalformed, ALockOfAnInvalidRangeIsRefused) {
  const auto node = calls_.lookup(directory_, "file");
  const auto open = calls_.open(*node, O_RDWR);
  for (const auto& [start, end] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{UINT64_MAX - 10, 5},
                                                            {std::uint64_t{1} << 63U, UINT64_MAX},
                                                            {10, 8},
                                                            {1, std::uint64_t{1} << 63U}}) {
    fuse_lk_in lock{};
    lock.fh = open->fh;
    lock.owner = 1;
    lock.lk = {.start = start, .end = end, .type = F_WRLCK, .pid = 0};
    for (const std::uint32_t opcode : {FUSE_SETLK, FUSE_GETLK}) {
      EXPECT_EQ(kernel_.call(opcode, *node, bytes_of(lock)).error, EINVAL) << start << ' ' << end;
    }
  }
}

// Sends well-formed requests with random nodes, handles and arguments.
TEST_F(FuseKernelMalformed, EveryRandomRequestGetsOneReply) {
  constexpr std::uint64_t kSeed = 1;
  std::mt19937_64 random(kSeed);
  const auto requests = empty_requests();
  std::vector<std::uint64_t> numbers;
  for (int at = 0; at < 3000; ++at) {
    std::pair<std::uint32_t, std::string> request =
        *std::next(requests.begin(), static_cast<std::ptrdiff_t>(random() % requests.size()));
    auto& [opcode, body] = request;
    const std::size_t arguments = std::min(body.size(), body.find("name"));
    for (int changes = 0; arguments > 0 && changes < 3; ++changes)
      body[random() % arguments] = static_cast<char>(random() % 4);
    // The tests above cover lock requests that wait, and requests that are too short.
    if (opcode == FUSE_SETLKW) opcode = FUSE_SETLK;
    numbers.push_back(kernel_.send(opcode, 1 + random() % 12, body));
    EXPECT_NE(kernel_.wait_for(numbers.back()).error, ETIME) << opcode << ", seed " << kSeed;
  }
  for (const std::uint64_t number : numbers) EXPECT_EQ(kernel_.replies_to(number), 1U);
}

}  // namespace
}  // namespace cacheshim
