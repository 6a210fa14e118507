// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cacheshim {

// The creator of a baton, for the daemon that takes over the layer of a dead daemon: one line each
// in a file of the layer's directory. Of those with equal paths the last one counts.
struct BatonRecord {
  std::string path;  // in the job's view
  ino_t inode = 0;
  pid_t process = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::vector<pid_t> ancestors;
  std::string boot;           // boot_id of the kernel
  std::string pid_namespace;  // the namespace of the numbers
};

inline constexpr const char* kBatonRecordsFile = "batons.jsonl";

// Returns one line, with its end; "" for a path that is not UTF-8, which then has no record.
std::string to_line(const BatonRecord& record);
// Skips lines that it cannot read and fields that it does not know.
std::vector<BatonRecord> parse_baton_records(std::string_view text);

}  // namespace cacheshim
