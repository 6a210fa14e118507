// SPDX-License-Identifier: Apache-2.0
#include "store/base/audit_log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "store/sys/json_text.h"
#include "store/sys/sys.h"

namespace cacheshim {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kAuditEvents = {AuditRecord::Event::kPublish, AuditRecord::Event::kEvict,
                                     AuditRecord::Event::kRepair};
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

// JSON must be UTF-8, but a file name may contain any bytes. A name that is not UTF-8 is stored in hex, under the key
// with the suffix "_hex".
void add_path(Json& json, const std::string& key, const std::string& path) {
  if (is_utf8(path)) {
    json[key] = path;
  } else {
    json[key + "_hex"] = to_hex(path);
  }
}

AuditRecord record_in(const nlohmann::json& json) {
  AuditRecord record;
  const std::string event = json.at("event").get<std::string>();
  for (const AuditRecord::Event known : kAuditEvents) {
    if (to_string(known) == event) record.event = known;
  }
  record.time = json.value("time", 0.0);
  record.node = json.value("node", "");
  record.unit = get_name(json, "entry");
  record.job = json.value("job", "");
  record.cycle = json.value("cycle", "");
  record.reason = json.value("reason", "");
  if (json.contains("uid"))
    record.uid = static_cast<unsigned>(get_integer(json["uid"], 0, UINT32_MAX));
  for (const auto& file : json.value("files", nlohmann::json::array())) {
    const auto size = static_cast<std::uint64_t>(find_integer(file, "size", 0, INT64_MAX, 0));
    record.files.push_back({get_name(file, "path"), size, file.value("xxh3", "")});
  }
  return record;
}

double now() {
  timespec time{};
  (void)::clock_gettime(CLOCK_REALTIME, &time);  // cannot fail for this clock
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec / 1000) / 1e6;
}

}  // namespace

std::string_view to_string(AuditRecord::Event event) {
  switch (event) {
    case AuditRecord::Event::kPublish:
      return "publish";
    case AuditRecord::Event::kEvict:
      return "evict";
    case AuditRecord::Event::kRepair:
      return "repair";
  }
  return "";
}

std::string to_json_line(const AuditRecord& record) {
  Json json;
  json["event"] = to_string(record.event);
  json["time"] = record.time;
  json["node"] = record.node;
  add_path(json, "entry", record.unit);
  if (record.event == AuditRecord::Event::kPublish) {
    json["job"] = record.job;
    json["cycle"] = record.cycle;
    if (record.uid) json["uid"] = *record.uid;
    json["files"] = Json::array();
    for (const AuditFile& file : record.files) {
      Json entry;
      add_path(entry, "path", file.path);
      entry["size"] = file.size;
      if (!file.digest.empty()) entry["xxh3"] = file.digest;
      json["files"].push_back(std::move(entry));
    }
  } else {
    json["reason"] = record.reason;
  }
  return dump_json(json) + "\n";
}

Result<AuditRecord> parse_audit_line(std::string_view line) {
  const auto json = parse_json(line);
  if (!json.is_object()) return Errno(EINVAL);
  try {
    return record_in(json);
  } catch (const std::exception&) {  // thrown if a field has the wrong type
    return Errno(EINVAL);
  }
}

Status AuditLog::append(AuditRecord record) const {
  if (!directory_) return {};
  record.time = now();
  record.node = node_;
  CACHESHIM_TRY(file, sys::open_beneath(directory_.get(), stem_ + ".jsonl",
                                        O_WRONLY | O_APPEND | O_CREAT, 0600));
  return sys::write_all(file.get(), to_json_line(record));
}

Status AuditLog::read(const std::function<void(AuditRecord)>& each) const {
  Places from_the_start;
  return read_on(from_the_start, each);
}

Status AuditLog::read_on(Places& places, const std::function<void(AuditRecord)>& each) const {
  return read_all(places, "", each);
}

Status AuditLog::read_naming(std::string_view name,
                             const std::function<void(AuditRecord)>& each) const {
  // JSON may escape some characters, so a text search for a name with such a character could miss the record. For such
  // a name, all lines are parsed.
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\' && c != '/';
  });
  Places from_the_start;
  return read_all(from_the_start, is_plain ? name : "", each);
}

Status AuditLog::read_all(Places& places, std::string_view needle,
                          const std::function<void(AuditRecord)>& each) const {
  if (!directory_) return {};
  CACHESHIM_TRY(names, sys::list_dir(directory_.get()));
  for (const sys::DirEntry& name : names) {
    if (name.name.find(".jsonl") == std::string::npos) continue;
    CACHESHIM_TRY(file, sys::open_beneath(directory_.get(), name.name, O_RDONLY));
    CACHESHIM_TRY(st, sys::stat_fd(file.get()));
    CACHESHIM_CHECK(read_file(file.get(), places[{st.st_dev, st.st_ino}], needle, each));
  }
  return {};
}

// Reads complete lines only. Leaves an incomplete last line for a later call.
Status AuditLog::read_file(int file, off_t& place, std::string_view needle,
                           const std::function<void(AuditRecord)>& each) {
  std::string text;
  for (off_t at = place;;) {
    const std::size_t before = text.size();
    text.resize(before + kReadBytes);
    const ssize_t count = ::pread(file, text.data() + before, kReadBytes, at);
    if (count == -1) return Errno::last();
    text.resize(before + static_cast<std::size_t>(count));
    at += count;
    std::size_t begin = 0;
    for (auto end = text.find('\n'); end != text.npos; end = text.find('\n', begin)) {
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      if (line.find(needle) != line.npos) {
        if (auto record = parse_audit_line(line)) each(*std::move(record));
      }
      begin = end + 1;
    }
    text.erase(0, begin);
    place += static_cast<off_t>(begin);
    if (count == 0) return {};
  }
}

}  // namespace cacheshim
