// SPDX-License-Identifier: Apache-2.0
//
//  runtime_cache save PATH TIMEOUT_MS ENTRY      adds an entry; exits with 75 if the lock times out
//  runtime_cache add PATH ROUNDS NAME            adds entries NAME-0, NAME-1, … one by one
//  runtime_cache load PATH                       prints the entries
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/locks/runtime_cache.h"

namespace {

using cacheshim::FileLock;
using cacheshim::LockError;

int report(const FileLock::Result& refused) {
  if (!refused) return 0;
  std::fprintf(stderr, "%s\n", refused->message().c_str());
  return refused->reason == LockError::Reason::kTimedOut ? 75 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 2 ? argv[1] : "";
  if (command.empty()) return 2;
  const cacheshim::example::RuntimeCache cache(argv[2]);
  if (command == "save" && argc == 5) {
    return report(cache.save(argv[4], std::chrono::milliseconds(std::atol(argv[3]))));
  }
  if (command == "add" && argc == 5) {
    int status = 0;
    for (long round = 0; round < std::atol(argv[3]) && status == 0; ++round) {
      status = report(
          cache.save(std::string(argv[4]) + "-" + std::to_string(round), std::chrono::minutes(2)));
    }
    return status;
  }
  if (command != "load") return 2;
  std::string entries;
  const int status = report(cache.load(entries));
  std::fputs(entries.c_str(), stdout);
  return status;
}
