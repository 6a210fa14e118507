// SPDX-License-Identifier: Apache-2.0
#include "store/sys/user_credentials.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "common/unique_fd.h"

namespace cacheshim {
namespace {

struct Shown {
  std::string user_ids;              // real, effective, saved and file system user id
  unsigned long long effective = 0;  // capabilities
};

// Returns the credentials of the calling thread, as /proc shows them.
Shown this_thread() {
  Shown shown;
  std::ifstream status("/proc/thread-self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Uid:\t")) shown.user_ids = line.substr(5);
    if (line.starts_with("CapEff:\t")) shown.effective = std::stoull(line.substr(8), nullptr, 16);
  }
  return shown;
}

// The parameter: the thread's secure bits (capabilities(7)).
class UserCredentialsTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    struct statfs st {};
    ASSERT_TRUE(file_);
    ASSERT_EQ(::fstatfs(file_.get(), &st), 0);
    if (::geteuid() != 0) GTEST_SKIP() << "not root";
    if (st.f_type != EXT4_SUPER_MAGIC) GTEST_SKIP() << "not on ext4";
  }

  UniqueFd file_{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
};

TEST_P(UserCredentialsTest, GivesUpRootsFileSystemIdAndOneCapabilityForAWhile) {
  std::thread([&] {
    ASSERT_EQ(::prctl(PR_SET_SECUREBITS, GetParam(), 0, 0, 0), 0);
    const Shown before = this_thread();
    {
      const UserCredentials credentials(file_.get());
      const Shown within = this_thread();
      EXPECT_EQ(within.user_ids, "0\t0\t0\t65534");
      EXPECT_EQ(within.effective, before.effective & ~(1ULL << CAP_SYS_RESOURCE));
    }
    const Shown after = this_thread();
    EXPECT_EQ(after.user_ids, before.user_ids);
    EXPECT_EQ(after.effective, before.effective);
  }).join();
}

INSTANTIATE_TEST_SUITE_P(SecureBits, UserCredentialsTest,
                         testing::Values(0, SECBIT_NO_SETUID_FIXUP));

}  // namespace
}  // namespace cacheshim
