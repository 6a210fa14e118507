// SPDX-License-Identifier: Apache-2.0
// The program `cacheshim-remote`: the only process of cacheshim that speaks to a remote tier's engine. The daemon and
// `cacheshim remote` start it, with a socket as descriptor 3 (wire.h). It exits when they close the socket. It never
// sees a key for signing, and needs no access to the store.
//
//   cacheshim-remote UID GID
//
// Before it reads the first message, it gives up all capabilities and, if it is root, becomes user UID and group GID.

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cstdio>
#include <exception>
#include <string>

#include "common/exit_codes.h"
#include "helper/privileges.h"
#include "remote/helper/server.h"
#include "remote/helper/tier_url.h"
#include "remote/wire.h"
#include "store/sys/json_text.h"

namespace cacheshim::remote {
namespace {

constexpr int kSocket = 3;

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
  if (const auto failed = helper::give_up_privileges(argc, argv, "cacheshim-remote",
                                                     "the daemon and 'cacheshim remote' start")) {
    return *failed;
  }
  protect_memory();
  (void)::signal(SIGPIPE, SIG_IGN);  // libcurl's connections may raise it (CURLOPT_NOSIGNAL(3))
  // quick_exit(3) runs no destructors: threads may still be inside a call into an engine. They end with the process.
  std::quick_exit(run());
}
