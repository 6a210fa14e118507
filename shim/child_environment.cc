// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/child_environment.h"

#include <cstring>

#include "shim/own_library.h"

namespace cacheshim::child_environment {
namespace {

constexpr const char kPreload[] = "LD_PRELOAD=";
constexpr const char kOwnPrefix[] = "CACHESHIM_";
constexpr std::size_t kMaxOurs = 32;
constexpr std::size_t kMaxEntries = 65536;  // 512 KiB of stack; execve has room for few more

constinit char text[16384] = {};  // the program may overwrite the environment it was started with
constinit std::size_t text_length = 0;
constinit const char* ours[kMaxOurs] = {};
constinit std::size_t our_count = 0;  // 0: nothing is added

bool starts_with(const char* entry, const char* prefix) {
  return std::strncmp(entry, prefix, std::strlen(prefix)) == 0;
}

std::size_t name_length(const char* entry) { return std::strcspn(entry, "="); }

void keep(const char* entry) {
  const std::size_t size = std::strlen(entry) + 1;
  if (our_count == kMaxOurs || size > sizeof text - text_length) return;
  std::memcpy(text + text_length, entry, size);
  ours[our_count++] = text + text_length;
  text_length += size;
}

bool is_left(char* const* environment) {
  const char* const how = find_variable(environment, "CACHESHIM_EXEC");
  return how != nullptr && std::strcmp(how, "leave") == 0;
}

bool has(char* const* environment, const char* wanted) {
  const std::size_t length = name_length(wanted) + 1;
  for (; *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, wanted, length) == 0) return true;
  }
  return false;
}

}  // namespace

const char* find_variable(char* const* environment, const char* name) {
  if (environment == nullptr) return nullptr;
  const std::size_t length = std::strlen(name);
  for (; *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
      return *environment + length + 1;
    }
  }
  return nullptr;
}

void prepare(char* const* environment, const char* warned) {
  PathBuffer library;
  PathBuffer entry;
  const std::size_t length = name_own_library(find_variable(environment, "LD_PRELOAD"), library);
  if (length == 0 || is_left(environment)) return;
  if (join_path(entry, {kPreload, {library.text, length}}) == 0) return;
  keep(entry.text);
  if (our_count == 0) return;
  for (; *environment != nullptr; ++environment) {
    if (starts_with(*environment, kOwnPrefix) && *environment != warned) keep(*environment);
  }
  if (warned != nullptr && our_count < kMaxOurs) ours[our_count++] = warned;
}

std::size_t size_with_ours(char* const* environment) {
  if (our_count == 0) return 0;
  std::size_t count = 0;
  if (environment != nullptr) {  // Linux takes none for an empty one
    for (; environment[count] != nullptr; ++count) {
      if (starts_with(environment[count], kPreload)) return 0;
    }
    if (is_left(environment)) return 0;
  }
  return count > kMaxEntries ? 0 : count + our_count + 1;
}

void fill(char* const* environment, char** out) {
  static char* const none[] = {nullptr};
  if (environment == nullptr) environment = none;
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count) out[count] = environment[count];
  std::size_t at = count;
  for (std::size_t i = 0; i < our_count; ++i) {
    if (!has(environment, ours[i])) out[at++] = const_cast<char*>(ours[i]);  // exec only reads it
  }
  out[at] = nullptr;
}

}  // namespace cacheshim::child_environment
