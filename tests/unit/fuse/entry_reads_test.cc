// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "fuse/jobs/entry_reads.h"

namespace cacheshim {
namespace {

TEST(EntryReads, AThreadHasReadWhatItHasOpenedItself) {
  EntryReads reads;
  EXPECT_FALSE(reads.has_any());
  reads.note_read("fam/K", 7);
  EXPECT_TRUE(reads.has_read("fam/K", 7));
  EXPECT_FALSE(reads.has_read("fam/K", 8));
  EXPECT_FALSE(reads.has_read("fam/L", 7));
}

TEST(EntryReads, ARejectionIsSettledOnce) {
  EntryReads reads;
  reads.note_rejected("fam/K");
  EXPECT_TRUE(reads.has_rejected("fam/K"));
  EXPECT_FALSE(reads.has_rejected("fam/L"));
  reads.settle("fam/K");
  EXPECT_FALSE(reads.has_rejected("fam/K"));
  EXPECT_FALSE(reads.has_rejected_any());
}

TEST(EntryReads, MemoryIsBounded) {
  EntryReads reads;
  for (pid_t thread = 0; thread <= static_cast<pid_t>(EntryReads::kMostReads); ++thread) {
    reads.note_read("fam/K", thread);
  }
  EXPECT_FALSE(reads.has_read("fam/K", 0)) << "old reads are forgotten";
  EXPECT_TRUE(reads.has_read("fam/K", EntryReads::kMostReads));
  for (std::size_t number = 0; number <= EntryReads::kMostRejected; ++number) {
    reads.note_rejected("fam/" + std::to_string(number));
  }
  EXPECT_TRUE(reads.has_rejected("fam/0"));
  EXPECT_FALSE(reads.has_rejected("fam/" + std::to_string(EntryReads::kMostRejected)));
}

}  // namespace
}  // namespace cacheshim
