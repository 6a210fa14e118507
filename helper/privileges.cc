// SPDX-License-Identifier: Apache-2.0
#include "helper/privileges.h"

#include <errno.h>
#include <grp.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "common/exit_codes.h"

namespace cacheshim::helper {
namespace {

std::optional<unsigned> parse_id(std::string_view text) {
  unsigned id = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return id;
}

bool give_up_capabilities() {
  const cap_t none = ::cap_init();
  if (none == nullptr) return false;
  const bool is_done = ::cap_set_proc(none) == 0;
  (void)::cap_free(none);
  return is_done;
}

// Returns whether this process is in a user namespace that does not contain all users. Root in such a namespace is
// usually an unprivileged user outside, and cannot become a user that the namespace lacks.
bool is_in_small_namespace() {
  unsigned first = 1;
  unsigned outside = 1;
  unsigned long count = 0;
  std::FILE* const map = std::fopen("/proc/self/uid_map", "re");
  if (map == nullptr) return false;
  const int read = std::fscanf(map, "%u %u %lu", &first, &outside, &count);
  (void)std::fclose(map);
  constexpr unsigned long kAll = 4294967295;
  return read == 3 && (first != 0 || outside != 0 || count != kAll);
}

// setresuid(2) alone would keep the capabilities, because the daemon sets SECBIT_NO_SETUID_FIXUP.
bool become(uid_t uid, gid_t gid) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  const bool has_become =
      ::geteuid() != 0 || (::setgroups(0, nullptr) == 0 && ::setresgid(gid, gid, gid) == 0 &&
                           ::setresuid(uid, uid, uid) == 0);
  return (has_become || is_in_small_namespace()) && give_up_capabilities();
}

}  // namespace

std::optional<int> give_up_privileges(int argc, char** argv, const char* name,
                                      const char* starters) {
  const auto uid = argc == 3 ? parse_id(argv[1]) : std::nullopt;
  const auto gid = argc == 3 ? parse_id(argv[2]) : std::nullopt;
  if (!uid || !gid) {
    std::fprintf(stderr, "%s: only %s this program\n", name, starters);
    return kExitUsage;
  }
  if (become(*uid, *gid)) return std::nullopt;
  std::fprintf(stderr, "%s: cannot give up privileges: %s\n", name, std::strerror(errno));
  return kExitUnavailable;
}

}  // namespace cacheshim::helper
