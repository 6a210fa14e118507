// SPDX-License-Identifier: Apache-2.0
#include "cli/configuration/config.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/unit/support/failure_of.h"

namespace cacheshim::cli {
namespace {

std::string refusal(const std::string& text) {
  return failure_of([&] { (void)parse_config(text, "c.toml"); });
}

TEST(Config, AnEmptyFileSetsNothing) {
  const Config config = parse_config("", "c.toml");
  EXPECT_EQ(config.layers, "");
  EXPECT_FALSE(config.threads || config.job_idle || config.layer_keep || config.publish);
}

TEST(Config, ReadsEveryKey) {
  const Config config = parse_config(
      "layers = '/nvme/layers'\nthreads = 4\njob_idle = 30\nlayer_keep = '7d'\nflight_timeout = 0\n"
      "[publish]\npolicy = 'end'\n",
      "c.toml");
  EXPECT_EQ(config.layers, "/nvme/layers");
  EXPECT_EQ(config.threads, 4U);
  EXPECT_EQ(config.job_idle, std::chrono::seconds(30));
  EXPECT_EQ(config.layer_keep, std::chrono::hours(7 * 24));
  EXPECT_EQ(config.flight_timeout, std::chrono::seconds(0));
  EXPECT_EQ(config.publish, PublishPolicy::kEnd);
}

TEST(Config, ReadsWhetherAllFilesArePublishedReadable) {
  EXPECT_FALSE(parse_config("[publish]\n", "c.toml").open_files);
  EXPECT_EQ(parse_config("[publish]\nopen_files = true\n", "c.toml").open_files, true);
  EXPECT_NE(refusal("[publish]\nopen_files = 1\n").find("must be true or false"), std::string::npos);
}

TEST(Config, ReadsWhereMetricsAreServed) {
  EXPECT_FALSE(parse_config("[metrics]\n", "c.toml").metrics);
  const auto v4 = parse_config("[metrics]\nlisten = '0.0.0.0:9477'\n", "c.toml").metrics;
  EXPECT_EQ(v4.address, "0.0.0.0");
  EXPECT_EQ(v4.port, 9477);
  const auto v6 = parse_config("[metrics]\nlisten = '[::1]:1'\n", "c.toml").metrics;
  EXPECT_EQ(v6.address, "::1");
  EXPECT_EQ(v6.port, 1);
  for (const char* wrong : {"", ":", "9477", "localhost:9477", "127.0.0.1", "127.0.0.1:",
                            "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:94x", "127.0.0.1: 9477",
                            "::1:9477", "[::1]", "[127.0.0.1]:9477", "[]:9477"}) {
    EXPECT_NE(refusal(std::string("[metrics]\nlisten = '") + wrong + "'\n").find("c.toml:2: "),
              std::string::npos)
        << wrong;
  }
}

TEST(Config, ReadsThePublishers) {
  EXPECT_FALSE(parse_config("[publish]\n", "c.toml").allow);
  const Config some = parse_config(
      "verify_on_open = true\nio_uring = false\n[publish.allow]\nusers = ['root', 20001, 20001]\n"
      "groups = ['root', 7]\njobs = ['47*']\n",
      "c.toml");
  EXPECT_EQ(some.verify_on_open, true);
  EXPECT_EQ(some.io_uring, false);
  EXPECT_EQ(some.allow->users, (std::set<unsigned>{0, 20001}));
  EXPECT_EQ(some.allow->groups, (std::set<unsigned>{0, 7}));
  EXPECT_EQ(some.allow->jobs, std::vector<std::string>{"47*"});
  EXPECT_EQ(some.allow->text, "users root, 20001, 20001; groups root, 7; jobs in cgroups 47*");
  EXPECT_EQ(parse_config("[publish]\nallow = {}", "c.toml").allow->text, "");
}

TEST(Config, ReadsTheLimitsOfUsers) {
  EXPECT_EQ(parse_config("", "c.toml").limits, default_limits());
  LimitValues limits =
      parse_config("[limits]\nmax_handles = 7\nmax_layer_size = '5G'\nmax_locks = 0\n", "c.toml")
          .limits;
  EXPECT_EQ(value_of(limits, Limit::kHandles), 7U);
  EXPECT_EQ(value_of(limits, Limit::kLayerSize), 5ULL << 30);
  EXPECT_EQ(value_of(limits, Limit::kLocks), 0U);
  EXPECT_EQ(value_of(limits, Limit::kJobs), row_of(Limit::kJobs).default_value);
  EXPECT_NE(refusal("[limits]\nmax_jobs = -1\n").find("must not be negative"), std::string::npos);
  EXPECT_NE(refusal("[limits]\nmax_layer_size = '5Q'\n").find("must be a size"), std::string::npos);
  EXPECT_NE(refusal("[limits]\nmax_things = 1\n"), "");
}

TEST(Config, ListsCudaPoliciesPerProgram) {
  EXPECT_EQ(parse_config("", "c.toml").cuda_defaults, "");
  EXPECT_EQ(parse_config("[cuda]\n", "c.toml").cuda_defaults, "*\tauto\t\n");
  const Config config = parse_config(
      "[cuda]\neager = 'off'\n[cuda.programs]\n'py*' = 'force'\n'python3.1?' = 'auto'\n"
      "zsh = 'off'\ntrain = { eager = 'select', match = '^nccl' }\n",
      "c.toml");
  EXPECT_EQ(config.cuda_defaults,
            "train\tselect\t^nccl\nzsh\toff\t\npython3.1?\tauto\t\npy*\tforce\t\n*\toff\t\n");
}

TEST(Config, RejectsInvalidCudaValues) {
  const std::string policy = "must be one of off, auto, force, select";
  EXPECT_EQ(refusal("[cuda]\neager = 'yes'"), "2 c.toml:2: cuda.eager: " + policy);
  EXPECT_EQ(refusal("[cuda]\nprogram = 1"), "2 c.toml:2: unknown key 'cuda.program'");
  EXPECT_EQ(refusal("[cuda.programs]\nnvcc = 'no'"), "2 c.toml:2: cuda.programs.nvcc: " + policy);
  EXPECT_EQ(refusal("[cuda.programs]\nnvcc = 1"),
            "2 c.toml:2: cuda.programs.nvcc: must be a string");
  EXPECT_EQ(refusal("[cuda.programs]\nnvcc = { policy = 'off' }"),
            "2 c.toml:2: unknown key 'cuda.programs.nvcc.policy'");
  EXPECT_EQ(refusal("[cuda]\nmatch = '('").substr(0, 52),
            "2 c.toml:2: cuda.match: must be a POSIX extended reg");
  EXPECT_EQ(refusal("[cuda.programs]\n'/usr/bin/nvcc' = 'off'").substr(0, 42),
            "2 c.toml:2: cuda.programs./usr/bin/nvcc: m");
}

TEST(Config, UnknownKeysAreUsageErrorsWithFileAndLine) {
  EXPECT_EQ(refusal("threads = 1\nthread = 2\n"), "2 c.toml:2: unknown key 'thread'");
  EXPECT_EQ(refusal("[publish]\nallow = ['x']\n"), "2 c.toml:2: publish.allow: must be a table");
}

TEST(Config, RejectsInvalidValues) {
  const std::string duration = "must be a duration: seconds, or \"90s\", \"10m\", \"2h\", \"7d\"";
  EXPECT_EQ(refusal("job_idle = '10 minutes'"), "2 c.toml:1: job_idle: " + duration);
  EXPECT_EQ(refusal("layer_keep = -1"), "2 c.toml:1: layer_keep: " + duration);
  EXPECT_EQ(refusal("layer_keep = 1.5"), "2 c.toml:1: layer_keep: " + duration);
  EXPECT_EQ(refusal("threads = -1"),
            "2 c.toml:1: threads: must be from 0 (depends on the cores) to 256");
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

}  // namespace
}  // namespace cacheshim::cli
