// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "common/names.h"

namespace cacheshim {
namespace {

std::string escaped(std::string_view path) {
  char name[64];
  return {name, escape_mount_path(path, name, sizeof name)};
}

TEST(EscapeMountPath, DropsTheFirstSlashAndJoinsWithDashes) {
  EXPECT_EQ(escaped("/mnt/ci/cache"), "mnt-ci-cache");
  EXPECT_EQ(escaped("/mnt/"), "mnt");
}

TEST(EscapeMountPath, EscapesAmbiguousCharacters) {
  EXPECT_EQ(escaped("/ci-cache"), "ci\\x2dcache");
  EXPECT_EQ(escaped("/a b\\c\n"), "a\\x20b\\x5cc\\x0a");
  EXPECT_EQ(escaped("/.hidden/.x"), "\\x2ehidden-.x");
}

TEST(EscapeMountPath, DifferentPathsHaveDifferentNames) {
  EXPECT_NE(escaped("/a/b"), escaped("/a-b"));
  EXPECT_NE(escaped("/a-b"), escaped("/a\\x2db"));
}

TEST(EscapeMountPath, TheRootHasAName) { EXPECT_EQ(escaped("/"), "-"); }

TEST(EscapeMountPath, ReportsANameThatIsTooLong) {
  char name[4];
  EXPECT_EQ(escape_mount_path("/abcd", name, sizeof name), 4U);
  EXPECT_EQ(escape_mount_path("/abcde", name, sizeof name), 0U);
  EXPECT_EQ(escape_mount_path("/a-b", name, sizeof name), 0U);
}

}  // namespace
}  // namespace cacheshim
