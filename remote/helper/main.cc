// SPDX-License-Identifier: Apache-2.0
// The program `cacheshim-remote`: the only process of cacheshim that speaks to a remote tier's engine. The daemon and
// `cacheshim remote` start it, with a socket as descriptor 3 (wire.h). It exits when they close the socket. It never
// sees a key for signing, and needs no access to the store.
//
//   cacheshim-remote UID GID
//
// Before it reads the first message, it gives up all capabilities and, if it is root, becomes user UID and group GID.

#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "common/exit_codes.h"
#include "remote/helper/server.h"
#include "remote/helper/tier_url.h"
#include "remote/wire.h"
#include "store/sys/json_text.h"

namespace cacheshim::remote {
namespace {

constexpr int kSocket = 3;

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

// The process's memory contains credentials: no unprivileged process may read it, and no core file may contain it.
void protect_memory() {
  const rlimit none{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &none);
  (void)::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int run() {
  auto first = receive_message(kSocket);
  if (!first) return kExitSuccess;  // the peer has exited
  const nlohmann::json request = first->json;
  try {
    const auto make = [request] {
      return make_tier(request.at("urls"), request.value("secrets", nlohmann::json::object()),
                       std::chrono::milliseconds(get_integer(request.at("timeout_ms"), 1, 60'000)));
    };
    const bool has_leases = make()->has_leases();
    if (!send_message(kSocket, {{"leases", has_leases}})) return kExitSuccess;
    static Server server(kSocket, make);  // its threads use it until the process ends
    server.serve();
  } catch (const std::exception& error) {
    (void)send_message(kSocket, {{"error", "refused"}, {"text", error.what()}});
  }
  return kExitSuccess;
}

}  // namespace
}  // namespace cacheshim::remote

int main(int argc, char** argv) {
  using namespace cacheshim;
  using namespace cacheshim::remote;
  const auto uid = argc == 3 ? parse_id(argv[1]) : std::nullopt;
  const auto gid = argc == 3 ? parse_id(argv[2]) : std::nullopt;
  if (!uid || !gid) {
    std::fputs("cacheshim-remote: only the daemon and 'cacheshim remote' start this program\n",
               stderr);
    return kExitUsage;
  }
  if (!become(*uid, *gid)) {
    std::fprintf(stderr, "cacheshim-remote: cannot give up privileges: %s\n", std::strerror(errno));
    return kExitUnavailable;
  }
  protect_memory();
  (void)::signal(SIGPIPE, SIG_IGN);  // libcurl's connections may raise it (CURLOPT_NOSIGNAL(3))
  // quick_exit(3) runs no destructors: threads may still be inside a call into an engine. They end with the process.
  std::quick_exit(run());
}
