// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/kernel/kernel_fixture.h"

// Tests requests for files and directories of a view, as the kernel sends them (fake_kernel.h).
namespace cacheshim {
namespace {

using Names = std::vector<std::string>;

class FuseKernelFiles : public FuseKernelTest {
 protected:
  const std::uint64_t view_ = view_of("one");
  const std::uint64_t directory_ = *calls_.lookup(view_, "fam");
};

TEST_F(FuseKernelFiles, AFileIsReadAsItWasWritten) {
  const auto file = calls_.create(directory_, "file", O_RDWR);
  ASSERT_TRUE(file) << file.error().code();
  EXPECT_EQ(*calls_.write(*file, "text"), 4U);
  EXPECT_EQ(*calls_.read(*file, 100), "text");
  EXPECT_TRUE(calls_.release(*file));
  EXPECT_EQ(*calls_.lookup(directory_, "file"), file->node);
  EXPECT_EQ(*calls_.get(directory_, "file"), "text");
  EXPECT_EQ(calls_.getattr(file->node)->size, 4U);
}

// The daemon splices replies of more than 64 KiB.
TEST_F(FuseKernelFiles, ALargeReadGetsAllBytes) {
  scratch_.write("store/fam/large", std::string(100'000, 'x') + "end");
  const auto node = calls_.lookup(directory_, "large");
  ASSERT_TRUE(node);
  const auto file = calls_.open(*node, O_RDONLY);
  ASSERT_TRUE(file);
  EXPECT_EQ(*calls_.read(*file, 128 * 1024), std::string(100'000, 'x') + "end");
  EXPECT_TRUE(calls_.release(*file));
}

TEST_F(FuseKernelFiles, AChangeOfABaseFileStaysInTheView) {
  scratch_.write("store/fam/file", "base");
  const auto node = calls_.lookup(directory_, "file");
  const auto file = calls_.open(*node, O_WRONLY);
  ASSERT_TRUE(file) << file.error().code();
  EXPECT_EQ(*calls_.write(*file, "view"), 4U);
  EXPECT_TRUE(calls_.release(*file));
  EXPECT_EQ(*calls_.get(directory_, "file"), "view");
  EXPECT_EQ(scratch_.read("store/fam/file"), "base");
}

TEST_F(FuseKernelFiles, AnOpenFileOutlivesItsName) {
  const auto file = calls_.create(directory_, "file", O_RDWR);
  ASSERT_TRUE(file);
  EXPECT_EQ(*calls_.write(*file, "text"), 4U);
  EXPECT_TRUE(calls_.unlink(directory_, "file"));
  EXPECT_TRUE(calls_.lookup(directory_, "file").failed_with(ENOENT));
  EXPECT_EQ(*calls_.read(*file, 100), "text");
  EXPECT_EQ(calls_.getattr(file->node)->nlink, 0U);
  EXPECT_TRUE(calls_.release(*file));
}

TEST_F(FuseKernelFiles, ARenameMovesTheNode) {
  const auto target = calls_.mkdir(directory_, "directory");
  ASSERT_TRUE(calls_.put(directory_, "file", "text"));
  const auto node = calls_.lookup(directory_, "file");
  EXPECT_TRUE(calls_.rename(directory_, "file", *target, "moved"));
  EXPECT_TRUE(calls_.lookup(directory_, "file").failed_with(ENOENT));
  EXPECT_EQ(*calls_.lookup(*target, "moved"), *node);
  EXPECT_EQ(*calls_.list(*target), Names{"moved"});
}

TEST_F(FuseKernelFiles, AListingMergesLayerAndBase) {
  scratch_.write("store/fam/base", "");
  scratch_.write("store/fam/removed", "");
  ASSERT_TRUE(calls_.put(directory_, "layer", ""));
  ASSERT_TRUE(calls_.unlink(directory_, "removed"));
  EXPECT_EQ(*calls_.list(directory_), (Names{"base", "layer"}));
}

TEST_F(FuseKernelFiles, ErrorsAreThoseOfTheCalls) {
  ASSERT_TRUE(calls_.put(directory_, "file", ""));
  ASSERT_TRUE(calls_.mkdir(directory_, "directory"));
  EXPECT_TRUE(calls_.lookup(directory_, "absent").failed_with(ENOENT));
  EXPECT_TRUE(calls_.lookup(directory_, std::string(300, 'x')).failed_with(ENAMETOOLONG));
  EXPECT_TRUE(calls_.unlink(directory_, "absent").failed_with(ENOENT));
  EXPECT_TRUE(calls_.unlink(directory_, "directory").failed_with(EISDIR));
  EXPECT_TRUE(calls_.mkdir(directory_, "file").failed_with(EEXIST));
  EXPECT_TRUE(calls_.create(directory_, "file", O_WRONLY | O_EXCL).failed_with(EEXIST));
  EXPECT_TRUE(calls_.rename(directory_, "absent", directory_, "new").failed_with(ENOENT));
}

TEST_F(FuseKernelFiles, AForgottenFileIsFoundAgain) {
  ASSERT_TRUE(calls_.put(directory_, "file", "text"));
  const std::uint32_t before = mount_.nodes.size();
  const auto node = calls_.lookup(directory_, "file");
  calls_.forget(*node, 2);  // two references: one from the create, one from the lookup
  EXPECT_TRUE(becomes_true([&] { return mount_.nodes.size() == before - 1; }));
  EXPECT_EQ(*calls_.get(directory_, "file"), "text");
}

TEST_F(FuseKernelFiles, AnUnknownRequestIsNotSupported) {
  EXPECT_EQ(kernel_.call(4000, directory_, "").error, ENOSYS);
  EXPECT_EQ(kernel_.call(FUSE_BMAP, directory_, bytes_of(fuse_bmap_in{})).error, ENOSYS);
}

}  // namespace
}  // namespace cacheshim
