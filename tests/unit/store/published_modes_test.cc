// SPDX-License-Identifier: Apache-2.0
// Tests which modes published files get, and which modes keep an entry in its layer.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "store/overlay/copy_up.h"
#include "tests/unit/store/publisher_fixture.h"

namespace cacheshim {
namespace {

class PublishedModes : public PublisherTest {
 protected:
  mode_t mode_of(const std::string& name) {
    struct stat st {};
    EXPECT_EQ(::stat((scratch_ / name).c_str(), &st), 0) << name;
    return st.st_mode & 07777;
  }
  bool is_staged(const std::string& name) {
    namespace fs = std::filesystem;
    const fs::recursive_directory_iterator staged(scratch_ / "base/.cacheshim/staging");
    return std::any_of(fs::begin(staged), fs::end(staged), [&](const fs::directory_entry& entry) {
      return entry.path().filename() == name;
    });
  }
};

TEST_F(PublishedModes, ModesInTheBaseAreSetByTheStore) {
  begin("K");
  put("fam/K/open", "1");
  put("fam/K/done-closed", "2");
  ASSERT_EQ(::chmod((scratch_ / "upper/fam/K/open").c_str(), 04775), 0);
  ASSERT_EQ(::chmod((scratch_ / "upper/fam/K/done-closed").c_str(), 0660), 0);
  hooks_.is_private = true;
  (void)publish("fam/K");
  EXPECT_EQ(mode_of("base/fam/K"), 0755U);
  EXPECT_EQ(mode_of("base/fam/K/open"), 0755U);
  EXPECT_EQ(mode_of("base/fam/K/done-closed"), 0600U);
}

TEST_F(PublishedModes, AnEntryWithAFileThatNotAllUsersMayReadStaysInTheLayer) {
  begin("K");
  put("fam/K/open", "1");
  put("fam/K/done-closed", "2");
  const std::string closed = scratch_ / "upper/fam/K/done-closed";
  for (const mode_t mode : {0600U, 0660U, 0700U}) {
    ASSERT_EQ(::chmod(closed.c_str(), mode), 0);
    EXPECT_EQ(publish("fam/K").incomplete, 1U);
    EXPECT_EQ(mode_of("upper/fam/K/done-closed"), mode);
  }
  EXPECT_FALSE(scratch_.exists("base/fam/K"));
  EXPECT_NE(hooks_.kept["fam/K"].find("umask"), std::string::npos);
  ASSERT_EQ(::chmod(closed.c_str(), 0604), 0);
  EXPECT_EQ(publish("fam/K").files, 2U);
}

TEST_F(PublishedModes, TheConfigurationMayOpenFilesThatNotAllUsersMayRead) {
  begin("K");
  put("fam/K/done-closed", "2");
  ASSERT_EQ(::chmod((scratch_ / "upper/fam/K/done-closed").c_str(), 0700), 0);
  publisher_->open_all_files();
  EXPECT_EQ(publish("fam/K").files, 1U);
  EXPECT_EQ(mode_of("base/fam/K/done-closed"), 0755U);
}

TEST_F(PublishedModes, AFileThatWasMadeExecutableAfterPublishingStaysInTheLayer) {
  begin("K");
  put("fam/K/done-a", "2");
  EXPECT_EQ(publish("fam/K").files, 1U);
  for (const bool is_executable : {false, true}) {
    ASSERT_TRUE(open_writable(overlay_, "fam/K/done-a", O_WRONLY));  // copies the file up
    const std::string file = scratch_ / "upper/fam/K/done-a";
    ASSERT_EQ(::chmod(file.c_str(), is_executable ? 0755 : 0644), 0);
    EXPECT_EQ(publish("fam/K").conflicts, is_executable ? 1U : 0U);
    EXPECT_EQ(scratch_.exists("upper/fam/K/done-a"), is_executable);
  }
  EXPECT_EQ(mode_of("base/fam/K/done-a"), 0644U);
}

// The staged file is a hard link to the layer's file, or a copy if the layer's file already has another hard link.
TEST_F(PublishedModes, AFileThatItsJobClosesDuringPublishingStaysClosed) {
  for (const bool is_copied : {false, true}) {
    const std::string key = is_copied ? "copied" : "linked";
    begin(key);
    put("fam/" + key + "/done-a", "2");
    const std::string file = scratch_ / ("upper/fam/" + key + "/done-a");
    if (is_copied) {
      ASSERT_EQ(::link(file.c_str(), (scratch_ / key).c_str()), 0);
    }
    bool is_done = false;
    const auto close_once_staged = [&] {  // is called before, during and after the staging
      if (is_staged("done-a") && !std::exchange(is_done, true)) (void)::chmod(file.c_str(), 0600);
      return true;
    };
    (void)publisher_->publish(overlay_, "fam/" + key, hooks_, close_once_staged);
    EXPECT_TRUE(is_done);
    EXPECT_FALSE(scratch_.exists("base/fam/" + key)) << key;
    EXPECT_EQ(mode_of("upper/fam/" + key + "/done-a"), 0600U) << key;
  }
}

}  // namespace
}  // namespace cacheshim
