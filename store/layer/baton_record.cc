// SPDX-License-Identifier: Apache-2.0
#include "store/layer/baton_record.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "store/sys/json_text.h"

namespace cacheshim {
namespace {

std::optional<BatonRecord> parse_line(std::string_view line) {
  const auto json = parse_json(line);
  if (!json.is_object()) return std::nullopt;
  BatonRecord record;
  try {
    record.path = get_name(json, "path");
    if (record.path.empty()) return std::nullopt;
    record.inode = static_cast<ino_t>(get_integer(json.at("inode"), 0, INT64_MAX));
    record.process = static_cast<pid_t>(get_integer(json.at("pid"), 0, INT32_MAX));
    record.start_time =
        static_cast<std::uint64_t>(get_integer(json.at("start_time"), 0, INT64_MAX));
    for (const auto& ancestor : json.value("ancestors", nlohmann::json::array())) {
      record.ancestors.push_back(static_cast<pid_t>(get_integer(ancestor, 0, INT32_MAX)));
    }
    record.boot = json.value("boot", "");
    record.pid_namespace = json.value("pid_namespace", "");
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  return record;
}

}  // namespace

std::string to_line(const BatonRecord& record) {
  nlohmann::ordered_json json;
  put_name(json, "path", record.path);
  json.update({{"inode", record.inode},
               {"pid", record.process},
               {"start_time", record.start_time},
               {"ancestors", record.ancestors},
               {"boot", record.boot},
               {"pid_namespace", record.pid_namespace}});
  return dump_json(json) + "\n";
}

std::vector<BatonRecord> parse_baton_records(std::string_view text) {
  std::map<std::string, BatonRecord> last;  // by path
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto record = parse_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (record) last.insert_or_assign(record->path, *record);
  }
  std::vector<BatonRecord> records;
  for (auto& [path, record] : last) records.push_back(std::move(record));
  return records;
}

}  // namespace cacheshim
