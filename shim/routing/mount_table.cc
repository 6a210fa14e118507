// SPDX-License-Identifier: Apache-2.0
#include "shim/routing/mount_table.h"

#include <cstring>

#include "common/names.h"

namespace cacheshim {
namespace {

std::string_view take_field(std::string_view& line) {
  const char* at = line.data();
  const char* const end = at + line.size();
  const char* const begin = at;
  while (at != end && *at != ' ') ++at;
  const std::string_view field(begin, static_cast<std::size_t>(at - begin));
  if (at != end) ++at;
  line = {at, static_cast<std::size_t>(end - at)};
  return field;
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// Whether `field`, after its escapes such as \040 are decoded, is `text`.
bool decodes_to(std::string_view field, std::string_view text) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < field.size(); ++i, ++at) {
    const char* in = field.data() + i;
    char c = *in;
    const bool escaped =
        c == '\\' && i + 3 < field.size() && is_octal(in[1]) && is_octal(in[2]) && is_octal(in[3]);
    if (escaped) {
      c = static_cast<char>(((in[1] - '0') << 6) | ((in[2] - '0') << 3) | (in[3] - '0'));
      i += 3;
    }
    if (at == text.size() || text.data()[at] != c) return false;
  }
  return at == text.size();
}

unsigned take_number(std::string_view& text) {
  unsigned value = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (; at != end && *at >= '0' && *at <= '9'; ++at) {
    value = value * 10 + static_cast<unsigned>(*at - '0');
  }
  if (at != end) ++at;  // skip the ':' between major and minor
  text = {at, static_cast<std::size_t>(end - at)};
  return value;
}

// Returns the number of the last option user_id=N, or -1. FUSE writes its options after all others,
// so no other option that contains this text can follow.
uid_t take_owner(std::string_view options) {
  constexpr std::string_view kUser = "user_id=";
  uid_t owner = static_cast<uid_t>(-1);
  for (std::size_t at = 0; at + kUser.size() < options.size(); ++at) {
    const bool begins = at == 0 || options.data()[at - 1] == ',';
    if (!begins || std::memcmp(options.data() + at, kUser.data(), kUser.size()) != 0) continue;
    std::string_view number(options.data() + at + kUser.size(), options.size() - at - kUser.size());
    if (*number.data() >= '0' && *number.data() <= '9') owner = take_number(number);
  }
  return owner;
}

}  // namespace

void MountScanner::feed(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes.data()[i];
    if (c == '\n') {
      end_line();
    } else if (length_ < line_.size()) {
      line_.data()[length_++] = c;
    }
  }
}

MountState MountScanner::finish() {
  end_line();
  return state_;
}

// A line has the form "36 35 98:0 ROOT MOUNTPOINT OPTIONS [TAG…] - TYPE SOURCE OPTIONS".
void MountScanner::end_line() {
  std::string_view line(line_.data(), length_);
  length_ = 0;
  (void)take_field(line);  // the mount id
  (void)take_field(line);  // the parent id
  std::string_view device = take_field(line);
  const std::string_view root = take_field(line);
  if (!decodes_to(take_field(line), path_)) return;
  std::string_view field;
  do {
    field = take_field(line);
  } while (!field.empty() && field != "-");
  state_ = {};
  if (take_field(line) != kFilesystemType) return;
  state_.kind = root == "/" ? MountKind::kWhole : MountKind::kBoundView;
  state_.major = take_number(device);
  state_.minor = take_number(device);
  (void)take_field(line);  // the source
  state_.owner = take_owner(take_field(line));
}

}  // namespace cacheshim
