// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "remote/engines/s3_tier.h"
#include "tests/unit/support/listener.h"
#include "tests/unit/support/owned_process.h"
#include "tests/unit/support/scratch.h"
#include "tests/unit/support/tier_failure.h"

namespace cacheshim::remote {

// Returns the path of the program `weed` (SeaweedFS), or "" if this machine does not have it.
inline std::string weed_program() {
  if (const char* const chosen = ::getenv("CACHESHIM_WEED"); chosen != nullptr) return chosen;
  const char* const path = ::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (::access((directory + "/weed").c_str(), X_OK) == 0) return directory + "/weed";
  }
  return "";
}

// A real S3 server, which stores its data in a temporary directory. The kernel kills the server when this process dies.
// Not thread-safe.
class Weed : public OwnedProcess {
 public:
  Weed() {
    scratch_.write("s3.json", R"({"identities": [
      {"name": "admin", "credentials": [{"accessKey": "A", "secretKey": "S"}], "actions": ["Admin"]},
      {"name": "reader", "credentials": [{"accessKey": "R", "secretKey": "S"}], "actions": ["Read", "List"]}]})");
    std::vector<Listener> listeners(8);  // all at the same time, so that the ports differ
    std::ranges::transform(listeners, std::back_inserter(ports_), &Listener::port);
  }
  ~Weed() {
    kill();
    for (const char* const role :
         {"master-grpc", "volume-grpc", "filer", "filer-grpc", "s3", "s3-grpc"}) {
      for (const int port : ports_)  // weed leaves these sockets when it is killed
        (void)::unlink(fmt::format("/tmp/seaweedfs-{}-{}.sock", role, port).c_str());
    }
  }
  // Starts the server and waits until it stores an object, which creates the bucket. Returns false if the server exits,
  // or stores none within 60 s.
  bool start() {
    using Clock = std::chrono::steady_clock;
    const std::vector<std::string> words = command();
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const std::string log = scratch_ / "log";
    own(::fork());
    if (pid() == 0) {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      (void)::dup2(out, STDOUT_FILENO);
      (void)::dup2(out, STDERR_FILENO);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    for (const auto end = Clock::now() + std::chrono::seconds(60); Clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
      S3Tier tier(options("ready"));
      const std::string key = fmt::format("at/{}", Clock::now().time_since_epoch().count());
      if (kind_of([&] { (void)tier.put_if_absent(key, "x"); }) == "none") return true;
      if (has_exited()) return false;
    }
    return false;
  }
  std::string log() const { return scratch_.read("log"); }
  S3Options options(const std::string& prefix,
                    std::chrono::milliseconds timeout = std::chrono::seconds(10)) const {
    return {fmt::format("http://127.0.0.1:{}", ports_[0]),
            "us-east-1",
            "cacheshim",
            prefix,
            "A",
            "S",
            "",
            timeout};
  }

 private:
  std::vector<std::string> command() const {
    std::vector<std::string> words{weed_program(),
                                   "-logtostderr=true",
                                   "server",
                                   "-ip=127.0.0.1",
                                   "-ip.bind=127.0.0.1",
                                   "-dir=" + scratch_.path(),
                                   "-filer",
                                   "-s3",
                                   "-s3.config=" + (scratch_ / "s3.json"),
                                   "-s3.port.iceberg=0",
                                   "-s3.port.lance=0",
                                   "-volume.max=60",
                                   "-master.volumeSizeLimitMB=64",
                                   "-master.telemetry=false",
                                   "-master.electionTimeout=1s",
                                   "-master.heartbeatInterval=100ms"};
    constexpr std::array kOptions{"s3.port",          "s3.port.grpc",    "master.port",
                                  "master.port.grpc", "filer.port",      "filer.port.grpc",
                                  "volume.port",      "volume.port.grpc"};
    for (std::size_t i = 0; i < kOptions.size(); ++i)
      words.push_back(fmt::format("-{}={}", kOptions[i], ports_[i]));
    return words;
  }

  Scratch scratch_;
  std::vector<int> ports_;
};

}  // namespace cacheshim::remote
