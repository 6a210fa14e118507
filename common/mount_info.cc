// SPDX-License-Identifier: Apache-2.0
#include "common/mount_info.h"

#include <errno.h>
#include <sys/vfs.h>

#include <charconv>
#include <fstream>
#include <sstream>

namespace cacheshim {
namespace {

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// Decodes escapes: the kernel writes space, tab, newline and backslash as \ooo.
std::string undo_escapes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      const int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      out.push_back(static_cast<char>(code));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::vector<std::string> split(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Parses a line "ID PARENT MAJOR:MINOR ROOT PATH OPTIONS [TAG…] - TYPE SOURCE SUPER_OPTIONS".
std::optional<MountEntry> parse_line(const std::string& line) {
  const std::vector<std::string> words = split(line);
  if (words.size() < 9) return std::nullopt;
  std::size_t dash = 6;
  while (dash < words.size() && words[dash] != "-") ++dash;
  if (dash + 1 >= words.size()) return std::nullopt;
  MountEntry entry;
  const std::string& id = words[0];
  const auto parsed = std::from_chars(id.data(), id.data() + id.size(), entry.id);
  if (parsed.ec != std::errc()) return std::nullopt;
  entry.device = words[2];
  entry.path = undo_escapes(words[4]);
  entry.type = words[dash + 1];
  entry.options = words[5];
  if (dash + 3 < words.size()) entry.super_options = words[dash + 3];
  return entry;
}

}  // namespace

std::vector<MountEntry> parse_mount_info(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<MountEntry> mounts;
  for (std::string line; std::getline(stream, line);) {
    if (auto entry = parse_line(line)) mounts.push_back(*std::move(entry));
  }
  return mounts;
}

std::optional<MountEntry> find_mount(const std::vector<MountEntry>& mounts, std::string_view path) {
  for (auto at = mounts.rbegin(); at != mounts.rend(); ++at) {
    if (at->path == path) return *at;
  }
  return std::nullopt;
}

std::optional<uid_t> owner_of(const MountEntry& mount) {
  constexpr std::string_view kUser = "user_id=";
  const auto at = mount.super_options.rfind(kUser);  // FUSE writes its options after all others
  if (at == std::string::npos) return std::nullopt;
  const char* const begin = mount.super_options.data() + at + kUser.size();
  uid_t uid = 0;
  const auto parsed =
      std::from_chars(begin, mount.super_options.data() + mount.super_options.size(), uid);
  return parsed.ec == std::errc() ? std::optional(uid) : std::nullopt;
}

std::vector<MountEntry> read_mounts() {
  std::ifstream file("/proc/self/mountinfo");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_mount_info(text.str());
}

bool is_dead_mount(const std::string& path) {
  // Does not call stat(2), which the kernel may answer from its cache. statfs(2) fails with
  // ECONNABORTED while the kernel is aborting the requests to the daemon.
  struct statfs status {};
  return ::statfs(path.c_str(), &status) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

}  // namespace cacheshim
