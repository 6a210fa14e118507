// SPDX-License-Identifier: Apache-2.0
#include "remote/object_pack.h"

#include <gtest/gtest.h>

#include <string>

namespace cacheshim::remote {
namespace {

std::string pack_of_two() {
  PackWriter writer;
  EXPECT_TRUE(writer.add("triton/A", "the first object"));
  EXPECT_TRUE(writer.add("triton/B", ""));
  EXPECT_EQ(writer.size(), 2U);
  return writer.bytes();
}

TEST(ObjectPack, AReaderGetsWhatWasWritten) {
  const std::string pack = pack_of_two();
  const auto objects = read_pack(pack);
  ASSERT_TRUE(objects);
  ASSERT_EQ(objects->size(), 2U);
  EXPECT_EQ((*objects)[0].unit, "triton/A");
  EXPECT_EQ((*objects)[0].object, "the first object");
  EXPECT_EQ((*objects)[1].unit, "triton/B");
  EXPECT_EQ((*objects)[1].object, "");
  EXPECT_EQ(read_pack(PackWriter().bytes())->size(), 0U);
}

TEST(ObjectPack, ATruncatedPackIsMalformed) {
  const std::string pack = pack_of_two();
  const std::size_t first = 8 + 16 + 8 + 16;  // where the second object begins
  for (std::size_t size = 0; size < pack.size(); ++size) {
    const bool ends_between_objects = size == 8 || size == first;
    EXPECT_EQ(read_pack(pack.substr(0, size)).has_value(), ends_between_objects) << size;
  }
  EXPECT_FALSE(read_pack(pack + "x"));
}

TEST(ObjectPack, ALengthBeyondThePackIsMalformed) {
  for (const std::size_t at : {8U, 16U}) {  // the lengths of the first name and object
    for (const std::size_t byte :
         {0U, 7U}) {  // a little too long, and so long that a sum overflows
      std::string pack = pack_of_two();
      pack[at + byte] = '\xff';
      EXPECT_FALSE(read_pack(pack)) << at << ' ' << byte;
    }
  }
}

TEST(ObjectPack, APackHasLimits) {
  PackWriter many;
  for (std::size_t i = 0; i < kMostPacked; ++i) ASSERT_TRUE(many.add("u", "o"));
  EXPECT_FALSE(many.add("u", "o"));
  EXPECT_EQ(many.size(), kMostPacked);
  EXPECT_EQ(read_pack(many.bytes())->size(), kMostPacked);
  const std::string more = many.bytes() + many.bytes().substr(8, 18);
  EXPECT_FALSE(read_pack(more));

  const std::string half(kMostPackBytes / 2, 'x');
  PackWriter large;
  ASSERT_TRUE(large.add("a", half));
  EXPECT_FALSE(large.add("b", half));
  ASSERT_TRUE(large.add("c", std::string(kMostPackBytes - large.bytes().size() - 17, 'x')));
  EXPECT_EQ(large.bytes().size(), kMostPackBytes);
  EXPECT_EQ(read_pack(large.bytes())->size(), 2U);
  EXPECT_FALSE(read_pack(large.bytes() + std::string(16, '\0')));
}

}  // namespace
}  // namespace cacheshim::remote
