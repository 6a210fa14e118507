// SPDX-License-Identifier: Apache-2.0
// Fuzzes the parsers of the records that daemons write into the store and its layers. The first byte of the input
// selects the kind of record.
#include <fcntl.h>

#include "store/base/audit_log.h"
#include "store/base/store_format.h"
#include "store/layer/baton_record.h"
#include "store/layer/layer.h"
#include "store/overlay/lower_stack.h"
#include "store/overlay/origin_log.h"
#include "store/sys/sys.h"
#include "tests/fuzz/target.h"
#include "tests/unit/support/scratch.h"

namespace cacheshim::fuzz {
namespace {

// This function and the next two serialize a parsed record and parse the result. The fields that they compare must be
// equal in both records.
void parse_layer(std::string_view text) {
  const auto record = parse_layer_record(text);
  if (!record) return;
  const auto again = parse_layer_record(to_json(*record));
  require(bool{again} && again->uid == record->uid && again->active == record->active &&
          again->started == record->started && again->publish == record->publish);
}

void parse_audit(std::string_view text) {
  const auto record = parse_audit_line(text);
  if (!record) return;
  const auto again = parse_audit_line(to_json_line(*record));
  require(bool{again} && again->event == record->event);
  if (record->event == AuditRecord::Event::kPublish) {
    require(again->files.size() == record->files.size());
  }
}

void parse_batons(std::string_view text) {
  for (const BatonRecord& record : parse_baton_records(text)) {
    const auto again = parse_baton_records(to_line(record));
    require(again.size() == 1 && again.front().path == record.path);
  }
}

void load_origins(std::string_view text) {
  static const Scratch scratch;
  static const UniqueFd work = scratch.open_dir("work");
  static const LowerStack lowers(std::vector<int>{work.get()});
  scratch.write(std::string("work/") + OriginLog::kFile, std::string(text));
  OriginLog log(lowers);
  log.begin_load(work.get());
  for (ino_t inode = 0; inode < 16; ++inode) log.found(work.get(), OriginLog::kFile, inode);
}

}  // namespace
}  // namespace cacheshim::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cacheshim::fuzz;
  read_selected({{'L', parse_layer},
                 {'A', parse_audit},
                 {'B', parse_batons},
                 {'F', [](std::string_view text) { (void)cacheshim::parse_store_format(text); }},
                 {'O', load_origins}},
                data, size);
  return 0;
}
