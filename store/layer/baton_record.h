// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cacheshim {

// Records the creator of each baton, for the daemon that takes over the layer of a dead daemon. A
// file in the layer's directory has one line per record. Of several lines with the same path, the
// last one counts.
struct BatonRecord {
  std::string path;  // in the job's view
  ino_t inode = 0;
  pid_t process = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot
  std::vector<pid_t> ancestors;
  std::string boot;           // boot_id of the kernel
  std::string pid_namespace;  // the PID namespace of `process` and `ancestors`
};

inline constexpr const char* kBatonRecordsFile = "batons.jsonl";

// Returns one line with its newline.
std::string to_line(const BatonRecord& record);
// Returns the last record of each path, sorted by path. Skips lines that it cannot parse, and
// unknown fields.
std::vector<BatonRecord> parse_baton_records(std::string_view text);

}  // namespace cacheshim
