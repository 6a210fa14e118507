// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zstd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/support/entry_object_fixture.h"

namespace cacheshim::remote {
namespace {

namespace fs = std::filesystem;

TEST_F(EntryObject, UnpackRefusesATargetThatIsNotEmpty) {
  const std::string object = crafted();
  scratch_.write("target/mine", "mine");
  EXPECT_EQ(unpack_to("target", object, opened(object)),
            "ENOTEMPTY cannot unpack 'triton/KEY': Directory not empty");
  EXPECT_EQ(scratch_.read("target/mine"), "mine");
}

// Each archive has a valid digest, so only unpack() can find what is wrong.
TEST_F(EntryObject, UnpackRefusesWrongArchivesAndLeavesNothing) {
  const std::string zeros(64 * kMiB, '\0');
  std::string wide(1000, '\0');
  {
    ZSTD_CCtx* const context = ::ZSTD_createCCtx();
    (void)::ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27);
    ZSTD_inBuffer in{"abc12", 5, 0};
    ZSTD_outBuffer out{wide.data(), wide.size(), 0};
    (void)::ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush);
    EXPECT_EQ(::ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0U);
    wide.resize(out.pos);
    (void)::ZSTD_freeCCtx(context);
  }
  const std::string good = compressed("abc12");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {compressed(zeros), "a bomb: other content, and too much"},
      {compressed("abc12" + zeros), "a bomb behind the right content"},
      {compressed("abc123"), "a byte more"},
      {compressed("abc1"), "a byte less"},
      {compressed("abc13"), "other content of the second file"},
      {compressed("xbc12"), "other content of the first file"},
      {good + good, "two frames"},
      {compressed("abc") + compressed("12"), "the right content in two frames"},
      {good + "x", "bytes behind the frame"},
      {good.substr(0, good.size() - 1), "a frame that is cut off"},
      {"", "no frame"},
      {"nonsense", "not a frame"},
      {wide, "a frame that needs 128 MiB of memory"}};
  for (const auto& [archive, what] : cases) {
    const std::string object = crafted_with(archive);
    ASSERT_EQ(verdict(object), "accepted") << what;
    const std::string error = unpack_to("target", object, opened(object));
    EXPECT_TRUE(error.starts_with("EBADMSG cannot unpack 'triton/KEY")) << what << ": " << error;
    EXPECT_TRUE(error.ends_with(": the archive does not contain what the manifest states"))
        << error;
    EXPECT_TRUE(fs::is_empty(scratch_ / "target")) << what;
  }
  EXPECT_EQ(unpack_to("target", crafted(), opened(crafted())), "<unpacked>");
  EXPECT_EQ(scratch_.read("target/triton/KEY/a") + scratch_.read("target/triton/KEY/b"), "abc12");
}

TEST_F(EntryObject, UnpackLeavesNothingIfTheFileSystemRefuses) {
  const std::string object = crafted();
  Manifest manifest = opened(object);
  manifest.files[1].path = "triton/KEY/" + std::string(300, 'b');
  EXPECT_TRUE(unpack_to("target", object, manifest).ends_with(": File name too long"));
  EXPECT_TRUE(fs::is_empty(scratch_ / "target"));
}

// Skips open_object(), which refuses these manifests.
TEST_F(EntryObject, UnpackNeverWritesOutsideItsTarget) {
  const std::string object = crafted();
  scratch_.write("outer/beside/file", "beside");
  fs::create_directories(scratch_ / "outer/target");
  const auto before = tree_of(scratch_ / "outer");
  const std::string digest = opened(object).files[0].digest;
  const std::string absolute = scratch_ / "outer/beside/new";
  std::vector<std::vector<EntryFile>> cases;
  for (const std::string& path :
       {std::string("../x"), std::string("../beside/new"), std::string("../beside/file"),
        std::string("a/../../x"), std::string("a/b/../../../x"), std::string(".."),
        std::string("../target"), absolute, std::string("/"), std::string("")}) {
    cases.push_back({{path, 3, 0644, digest, ""}});
    cases.push_back({{path, 0, 0, "", "x"}});
    cases.push_back({{path + "/y", 3, 0644, digest, ""}});
  }
  for (const char* target : {"../beside", "..", "/"}) {
    cases.push_back({{"link", 0, 0, "", target}, {"link/new", 3, 0644, digest, ""}});
    cases.push_back(
        {{"d/link", 0, 0, "", "../" + std::string(target)}, {"d/link/x", 3, 0644, digest, ""}});
  }
  cases.push_back({{"link", 0, 0, "", "../beside/file"}, {"link", 3, 0644, digest, ""}});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Manifest manifest = opened(object);
    manifest.files = cases[i];
    EXPECT_NE(unpack_to("outer/target", object, manifest), "<unpacked>") << "case " << i;
    EXPECT_EQ(tree_of(scratch_ / "outer"), before) << "case " << i;
    manifest.files.clear();
    manifest.directories = {cases[i].back().path};
    (void)unpack_to("outer/target", object, manifest);
    EXPECT_EQ(tree_of(scratch_ / "outer"), before) << "case " << i << " as a directory";
  }
}

TEST_F(EntryObject, UnpackSetsNoSpecialModeBits) {
  const std::string object = crafted();
  Manifest manifest = opened(object);
  manifest.files[0].mode = 07755;
  EXPECT_EQ(unpack_to("target", object, manifest), "<unpacked>");
  struct stat st {};
  ASSERT_EQ(::stat((scratch_ / "target/triton/KEY/a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0755U);
}

TEST_F(EntryObject, UnpackRefusesAManifestOfAnotherObject) {
  const Manifest manifest = opened(packed());
  EXPECT_TRUE(unpack_to("target", crafted(), manifest).starts_with("EBADMSG "));
  EXPECT_TRUE(unpack_to("target", "CSHIMOB1", manifest).starts_with("EBADMSG "));
  EXPECT_TRUE(fs::is_empty(scratch_ / "target"));
}

}  // namespace
}  // namespace cacheshim::remote
