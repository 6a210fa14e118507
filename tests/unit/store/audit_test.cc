// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "store/base/audit_log.h"
#include "store/sys/digest.h"
#include "store/sys/sys.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim {
namespace {

AuditRecord record_of(const std::string& unit) {
  AuditRecord record;
  record.unit = unit;
  record.job = "job-1";
  record.cycle = "3";
  record.uid = 20001;
  record.files = {{unit + "/a", 5, "00ff"}, {unit + "/link", 0, ""}};
  return record;
}

TEST(AuditLog, KeepsOneLineARecord) {
  const Scratch scratch;
  const AuditLog log(scratch.open_dir("audit"), "node1", "node1-boot");
  ASSERT_TRUE(log.append(record_of("triton/K")));
  AuditRecord evicted;
  evicted.event = AuditRecord::Event::kEvict;
  evicted.unit = "triton/K";
  evicted.reason = "max_size";
  ASSERT_TRUE(log.append(evicted));
  const std::string text = scratch.read("audit/node1-boot.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  std::vector<AuditRecord> read;
  ASSERT_TRUE(log.read([&](AuditRecord record) { read.push_back(std::move(record)); }));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].event, AuditRecord::Event::kPublish);
  EXPECT_GT(read[0].time, 1.7e9);
  EXPECT_EQ(read[0].node + read[0].unit + read[0].job + read[0].cycle, "node1triton/Kjob-13");
  EXPECT_EQ(read[0].uid, 20001U);
  ASSERT_EQ(read[0].files.size(), 2U);
  EXPECT_EQ(read[0].files[0].path, "triton/K/a");
  EXPECT_EQ(read[0].files[0].size, 5U);
  EXPECT_EQ(read[0].files[0].digest, "00ff");
  EXPECT_EQ(read[0].files[1].digest, "");
  EXPECT_EQ(read[1].event, AuditRecord::Event::kEvict);
  EXPECT_EQ(read[1].reason, "max_size");
}

TEST(AuditLog, ReadsOtherDaemonsRecordsAndSkipsMalformedLines) {
  const Scratch scratch;
  const AuditLog log(scratch.open_dir("audit"), "node1", "node1-boot");
  scratch.write("audit/node2.jsonl.1",
                "{\"event\":\"publish\",\"entry\":\"a\",\"new\":[1]}\n"
                "nonsense\n{\"event\":7}\n[]\n"
                "{\"event\":\"publish\",\"entry\":\"cut sho");
  scratch.write("audit/README", "{\"event\":\"publish\",\"entry\":\"b\"}\n");
  std::vector<std::string> units;
  ASSERT_TRUE(log.read([&](const AuditRecord& record) { units.push_back(record.unit); }));
  EXPECT_EQ(units, std::vector<std::string>{"a"});
}

TEST(AuditLog, ContinuesReadingWhereItStopped) {
  const Scratch scratch;
  const AuditLog log(scratch.open_dir("audit"), "node1", "node1-boot");
  AuditLog::Places places;
  std::vector<std::string> units;
  const auto read_on = [&] {
    units.clear();
    EXPECT_TRUE(log.read_on(places, [&](const AuditRecord& one) { units.push_back(one.unit); }));
    return units;
  };
  using Units = std::vector<std::string>;
  ASSERT_TRUE(log.append(record_of("a")));
  EXPECT_EQ(read_on(), Units{"a"});
  EXPECT_EQ(read_on(), Units{});
  scratch.write("audit/node2.jsonl", "{\"event\":\"publish\",\"entry\":\"b\"}\n{\"event\":\"pub");
  ASSERT_TRUE(log.append(record_of("c")));
  std::filesystem::rename(scratch / "audit/node1-boot.jsonl", scratch / "audit/node1-boot.jsonl.1");
  (void)read_on();
  std::sort(units.begin(), units.end());
  EXPECT_EQ(units, (Units{"b", "c"}));
  std::ofstream(scratch / "audit/node2.jsonl", std::ios::app) << "lish\",\"entry\":\"d\"}\n";
  EXPECT_EQ(read_on(), Units{"d"});
}

TEST(AuditLog, KeepsNamesThatAreNotUtf8) {
  const std::string name("triton/\xff\x01\xc3", 10);
  const auto read = parse_audit_line(to_json_line(record_of(name)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->unit, name);
  EXPECT_EQ(read->files[0].path, name + "/a");
}

TEST(Digest, IsXxh3Of128Bits) {
  const Scratch scratch;
  scratch.write("empty", "");
  scratch.write("text", "abc");
  scratch.write("large", std::string(1'000'000, 'x'));
  const auto digest = [&](const std::string& name) {
    return *digest_of(sys::open_path(scratch / name, O_RDONLY)->get());
  };
  EXPECT_EQ(digest("empty"), "99aa06d3014798d86001c324468d497f");  // as printed by xxhsum -H2
  EXPECT_EQ(digest("text"), "06b05ab6733a618578af5f94892f3950");
  EXPECT_NE(digest("large"), digest("text"));
}

}  // namespace
}  // namespace cacheshim
