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

// The record of additions to the base and removals from it: STORE/.cacheshim/audit/<node>-<boot>.jsonl, one JSON object
// per line, append-only. Each boot of each machine has its own file, because appends by several machines to one file
// are not atomic, and machines may have equal names. Readers also read all other files `*.jsonl*` in the directory, so
// that logs can be rotated.
namespace cacheshim {

struct AuditFile {
  std::string path;    // relative to the store
  std::uint64_t size;  // bytes
  std::string digest;  // xxh3-128 (digest.h); empty for a symlink
};

struct AuditRecord {
  // kPublish: files were added to the base. kEvict: a unit was moved to trash because a limit was exceeded, or because
  // a job's build replaced it. kRepair: a damaged unit was moved to trash.
  enum class Event { kPublish, kEvict, kRepair };

  Event event = Event::kPublish;
  double time = 0;   // seconds since 1970
  std::string node;  // the machine
  // The entry (EntryRef::unit()), or a file or directory that belongs to no entry.
  std::string unit;
  std::string job;  // kPublish: the job that published
  std::string cycle;
  std::optional<unsigned> uid;
  std::vector<AuditFile> files;  // kPublish: the added files
  std::string reason;            // only for kEvict and kRepair
};

std::string_view to_string(AuditRecord::Event event);
std::string to_json_line(const AuditRecord& record);
// Errors: EINVAL if the line is not a JSON object, lacks `event`, or has a field of the wrong type. Ignores unknown
// fields, and leaves other missing fields empty. Reads an unknown event as kPublish.
Result<AuditRecord> parse_audit_line(std::string_view line);

// Thread-safe.
class AuditLog {
 public:
  AuditLog() = default;  // creates a log that records nothing
  // `node` is this machine's name in the records. The records are appended to `stem`.jsonl, which no other machine may
  // use: on NFS, lines that two machines append at the same time overwrite each other.
  AuditLog(UniqueFd directory, std::string node, std::string stem)
      : directory_(std::move(directory)), node_(std::move(node)), stem_(std::move(stem)) {}

  // Appends `record` as a line, with the current time and this machine's name.
  Status append(AuditRecord record) const;

  // Calls `each` with every record of every file; the records of one file come in the file's order. Skips lines that
  // are not records, and an incomplete last line.
  Status read(const std::function<void(AuditRecord)>& each) const;
  // As read(), but may skip records whose line does not contain `name`. This is much faster, because lines without
  // `name` are not parsed. If JSON could escape a character of `name`, all lines are parsed.
  Status read_naming(std::string_view name, const std::function<void(AuditRecord)>& each) const;
  // The position up to which each file has been read. The key is the device and inode, so that a
  // rotated file keeps its position.
  using Places = std::map<std::pair<dev_t, ino_t>, off_t>;
  // As read(), but only for the lines that were added after `places`. Advances `places`.
  Status read_on(Places& places, const std::function<void(AuditRecord)>& each) const;

 private:
  Status read_all(Places& places, std::string_view needle,
                  const std::function<void(AuditRecord)>& each) const;
  static Status read_file(int file, off_t& place, std::string_view needle,
                          const std::function<void(AuditRecord)>& each);

  UniqueFd directory_;
  std::string node_;
  std::string stem_;
};

}  // namespace cacheshim
