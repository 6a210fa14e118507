// SPDX-License-Identifier: Apache-2.0
#include "common/root_process.h"

#include "common/text_scan.h"

namespace cacheshim {
namespace {

// Stores the next number of the text in `value`, and removes the text up to the number's end.
// Returns false if there is no number.
bool take_number(std::string_view& text, unsigned long& value) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end && !is_digit(*at)) ++at;
  if (at == end) return false;
  value = 0;
  for (; at != end && is_digit(*at); ++at) value = value * 10 + static_cast<unsigned>(*at - '0');
  text = {at, static_cast<std::size_t>(end - at)};
  return true;
}

bool names_another_user(std::string_view uid) { return !uid.empty() && uid != "0"; }

}  // namespace

UserNamespace parse_uid_map(std::string_view text) {
  UserNamespace found;
  unsigned long users = 0;
  unsigned long first;
  unsigned long outside;
  unsigned long count;
  while (take_number(text, first) && take_number(text, outside) && take_number(text, count)) {
    if (first == 0) found.outside_root = static_cast<uid_t>(outside);
    users += count;
  }
  found.has_one_user = users == 1;
  return found;
}

// sudo, doas and pkexec set these variables after they have copied the user's variables, so the user
// cannot override them.
bool has_environment_of_another_user(const Environment& environment) {
  const std::string_view doas_user = environment.find("DOAS_USER");
  return names_another_user(environment.find("SUDO_UID")) ||
         names_another_user(environment.find("PKEXEC_UID")) ||
         (!doas_user.empty() && doas_user != "root");
}

}  // namespace cacheshim
