// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/unique_fd.h"

// What has come into the base and gone from it: STORE/.cacheshim/audit/<node>.jsonl, one JSON object a
// line, only ever added to. Each machine has a file of its own, since appending is atomic on one
// machine only. Other files *.jsonl* of the folder are read as well, so that logs can be rotated.
namespace cacheshim {

struct AuditFile {
  std::string path;    // relative to the store
  std::uint64_t size;  // bytes
  std::string digest;  // xxh3-128 (digest.h); empty for a symlink
};

struct AuditRecord {
  // Of the base: files were added to it; a unit was moved to trash, for want of space or of use, or
  // for being damaged.
  enum class Event { kPublish, kEvict, kRepair };

  Event event = Event::kPublish;
  double time = 0;   // seconds since 1970
  std::string node;  // the machine
  std::string unit;  // the entry, as EntryRef::unit() spells it, or a file or folder of none
  std::string job;   // of a publish: who
  std::string cycle;
  std::optional<unsigned> uid;
  std::vector<AuditFile> files;  // of a publish: those that were added
  std::string reason;            // of the others
};

std::string_view to_string(AuditRecord::Event event);
std::string to_json_line(const AuditRecord& record);
// Errors: EINVAL for a line that is no record. Unknown fields are skipped, missing ones stay empty.
Result<AuditRecord> parse_audit_line(std::string_view line);

// Thread-safe.
class AuditLog {
 public:
  AuditLog() = default;  // keeps nothing
  AuditLog(UniqueFd folder, std::string node)
      : folder_(std::move(folder)), node_(std::move(node)) {}

  // Adds a line, the time and this machine's name filled in.
  Status append(AuditRecord record) const;

  // Calls with each record of each file, those of one file in order. Lines that are no records are
  // left out.
  Status read(const std::function<void(AuditRecord)>& each) const;
  // Calls with those records whose line holds `name`, and maybe with others. Parses no other line: much faster.
  Status read_naming(std::string_view name, const std::function<void(AuditRecord)>& each) const;
  // How far each file has been read, by inode: a file that was rotated is still the same.
  using Places = std::map<std::pair<dev_t, ino_t>, off_t>;
  // The same of what has been added since `places` were left as they are; they are brought up to date.
  Status read_on(Places& places, const std::function<void(AuditRecord)>& each) const;

 private:
  Status read_all(Places& places, std::string_view needle,
                  const std::function<void(AuditRecord)>& each) const;
  static Status read_file(int file, off_t& place, std::string_view needle,
                          const std::function<void(AuditRecord)>& each);

  UniqueFd folder_;
  std::string node_;
};

}  // namespace cacheshim
