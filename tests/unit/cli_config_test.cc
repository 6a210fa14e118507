// SPDX-License-Identifier: Apache-2.0
#include "cli/config.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include "cli/failure.h"
#include "cli/mount_options.h"
#include "common/exit_codes.h"

namespace cacheshim::cli {
namespace {

// "2 MESSAGE" of what `action` throws.
template <class Action>
std::string failure_of(Action action) {
  try {
    action();
  } catch (const Failure& failure) {
    return std::to_string(failure.exit_code()) + " " + failure.what();
  }
  return "accepted";
}

std::string refusal(const std::string& text) {
  return failure_of([&] { (void)parse_config(text, "c.toml"); });
}

TEST(Config, EmptyLeavesEverythingOpen) {
  const Config config = parse_config("", "c.toml");
  EXPECT_EQ(config.layers, "");
  EXPECT_FALSE(config.threads || config.job_idle || config.layer_keep || config.publish);
}

TEST(Config, ReadsEveryKey) {
  const Config config = parse_config(
      "layers = '/nvme/layers'\nthreads = 4\njob_idle = 30\nlayer_keep = '7d'\n"
      "[publish]\npolicy = 'end'\n",
      "c.toml");
  EXPECT_EQ(config.layers, "/nvme/layers");
  EXPECT_EQ(config.threads, 4U);
  EXPECT_EQ(config.job_idle, std::chrono::seconds(30));
  EXPECT_EQ(config.layer_keep, std::chrono::hours(7 * 24));
  EXPECT_EQ(config.publish, PublishPolicy::kEnd);
}

TEST(Config, UnknownKeysAreUsageErrorsWithFileAndLine) {
  EXPECT_EQ(refusal("threads = 1\nthread = 2\n"), "2 c.toml:2: unknown key 'thread'");
  EXPECT_EQ(refusal("[publish]\nallow = ['x']\n"), "2 c.toml:2: unknown key 'publish.allow'");
}

TEST(Config, RefusesValuesThatMakeNoSense) {
  const std::string duration = "must be a duration: seconds, or \"90s\", \"10m\", \"2h\", \"7d\"";
  EXPECT_EQ(refusal("job_idle = '10 minutes'"), "2 c.toml:1: job_idle: " + duration);
  EXPECT_EQ(refusal("layer_keep = -1"), "2 c.toml:1: layer_keep: " + duration);
  EXPECT_EQ(refusal("layer_keep = 1.5"), "2 c.toml:1: layer_keep: " + duration);
  EXPECT_EQ(refusal("threads = -1"),
            "2 c.toml:1: threads: must be from 0 (chosen by the cores) to 256");
  EXPECT_EQ(refusal("layers = 'x'"), "2 c.toml:1: layers: must be an absolute path");
  EXPECT_EQ(refusal("publish = 'end'"), "2 c.toml:1: publish: must be a table");
  EXPECT_EQ(refusal("[publish]\npolicy = 'always'"),
            "2 c.toml:2: publish.policy: must be one of never, end, complete");
  EXPECT_EQ(refusal("threads = ").substr(0, 11), "2 c.toml:1:");
}

TEST(Config, AFileThatWasNamedMustExist) {
  EXPECT_EQ(failure_of([] { (void)load_config("/nonexistent/c.toml"); }),
            "2 no configuration file at '/nonexistent/c.toml'");
}

TEST(MountOptions, BecomeFlagsAndTheLastOneCounts) {
  EXPECT_EQ(parse_mount_options({}), 0U);
  EXPECT_EQ(parse_mount_options({"ro", "noexec", "noatime"}),
            static_cast<unsigned long>(MS_RDONLY | MS_NOEXEC | MS_NOATIME));
  EXPECT_EQ(parse_mount_options({"ro", "rw"}), 0U);
  EXPECT_EQ(parse_mount_options({"rw", "ro", ""}), static_cast<unsigned long>(MS_RDONLY));
  EXPECT_EQ(parse_mount_options({"owner=squash", "allow_other", "default_permissions"}), 0U);
}

TEST(MountOptions, RefuseWhatIsUnknownAndSayWhatIsKnown) {
  for (const char* option : {"suid", "dev", "owner=keep", "RO", "uid=0"}) {
    const std::string failure = failure_of([&] { (void)parse_mount_options({"ro", option}); });
    EXPECT_EQ(
        failure.rfind("2 unknown mount option '" + std::string(option) + "'; known are ro,", 0), 0U)
        << failure;
  }
}

}  // namespace
}  // namespace cacheshim::cli
