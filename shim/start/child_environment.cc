// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/start/child_environment.h"

#include <unistd.h>

#include <cstring>

#include "common/names.h"
#include "shim/hooks/path_spelling.h"
#include "shim/start/own_library.h"

namespace cacheshim::child_environment {
namespace {

constexpr const char kPreload[] = "LD_PRELOAD=";
constexpr const char kOwnPrefix[] = "CACHESHIM_";
constexpr const char kDirectory[] = "CACHESHIM_DIRECTORY";
constexpr std::size_t kMaxOurs = 32;
constexpr std::size_t kMaxEntries = 65536;  // 512 KiB of stack; execve rarely has space for more

constinit char text[16384] = {};  // copies, because the program may overwrite its original environment
constinit std::size_t text_length = 0;
constinit const char* ours[kMaxOurs] = {};
constinit std::size_t our_count = 0;  // if 0, nothing is added
constinit pid_t own_pid = 0;

bool starts_with(const char* entry, const char* prefix) {
  return std::strncmp(entry, prefix, std::strlen(prefix)) == 0;
}

std::size_t name_length(const char* entry) { return std::strcspn(entry, "="); }

bool has_value(const char* directory_entry) {
  return directory_entry[sizeof kDirectory - 1] == '=';
}

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

// Returns the word of LD_PRELOAD that names this library; empty if there is none.
std::string_view own_word(const char* value) {
  return our_count == 0 || value == nullptr ? std::string_view()
                                            : find_word(value, ours[0] + sizeof kPreload - 1);
}

// Writes an LD_PRELOAD entry without the words that name this library, and returns the end of the
// text. If no word is left, an empty value remains: it tells the library in other processes that
// the variable was not removed.
char* write_without_library(const char* entry, char* out) {
  const std::size_t front = sizeof kPreload - 1;
  std::memcpy(out, entry, front);
  out += front;
  const char* at = entry + front;
  for (std::string_view word = own_word(at); !word.empty(); word = own_word(at)) {
    const auto before = static_cast<std::size_t>(word.data() - at);
    std::memcpy(out, at, before);
    out += before;
    at = word.data() + word.size();
  }
  std::memcpy(out, at, std::strlen(at) + 1);
  return out + std::strlen(at) + 1;
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
  own_pid = ::getpid();
  if (join_path(entry, {kPreload, {library.text, length}}) == 0) return;
  keep(entry.text);
  if (our_count == 0) return;
  const char* const home = find_variable(environment, "HOME");
  const bool has_home =
      home != nullptr && find_variable(environment, kHomeVariable.data()) == nullptr;
  if (has_home && join_path(entry, {kHomeVariable, "=", home}) != 0) keep(entry.text);
  for (; *environment != nullptr; ++environment) {
    if (starts_with(*environment, kOwnPrefix) && *environment != warned) keep(*environment);
  }
  if (warned != nullptr && our_count < kMaxOurs) ours[our_count++] = warned;
}

bool lacks_ours(char* const* environment) {
  if (our_count == 0) return false;
  // Linux treats null as an empty environment.
  return environment == nullptr ||
         (find_variable(environment, "LD_PRELOAD") == nullptr && !is_left(environment));
}

bool has_dropped_library(char* const* environment) {
  return environment != nullptr && lacks_ours(environment) && ::getpid() == own_pid &&
         has(environment, ours[our_count - 1]);
}

bool names_library(char* const* environment) {
  const std::string_view word = own_word(find_variable(environment, "LD_PRELOAD"));
  return !word.empty() && !is_left(environment) &&
         std::memchr(word.data(), '$', word.size()) == nullptr;
}

Change find_change(char* const* environment, Library library) {
  Change change;
  change.library = library;
  if (our_count != 0) change.directory = path_spelling::directory_for_children();
  if (environment != nullptr && change.directory != nullptr) {
    const char* const given = find_variable(environment, kDirectory);
    if (std::strcmp(change.directory, given == nullptr ? "" : given) == 0)
      change.directory = nullptr;
  }
  if (library == Library::kAsItIs && change.directory == nullptr) return change;
  std::size_t count = 0;
  while (environment != nullptr && environment[count] != nullptr) ++count;
  if (count > kMaxEntries) return change;
  change.pointers = count + our_count + 2;
  if (change.directory != nullptr)
    change.bytes = sizeof kDirectory + std::strlen(change.directory) + 1;
  for (std::size_t i = 0; library == Library::kDropped && i < count; ++i) {
    if (starts_with(environment[i], kPreload)) change.bytes += std::strlen(environment[i]) + 1;
  }
  return change;
}

void apply_change(char* const* environment, const Change& change, char** out, char* room) {
  static char* const none[] = {nullptr};
  if (environment == nullptr) environment = none;
  const auto is_replaced = [&](const char* entry) {
    return change.directory != nullptr && starts_with(entry, kDirectory) && has_value(entry);
  };
  std::size_t at = 0;
  for (std::size_t i = 0; environment[i] != nullptr; ++i) {
    if (is_replaced(environment[i])) continue;
    out[at++] = environment[i];
    if (change.library != Library::kDropped || !starts_with(environment[i], kPreload)) continue;
    out[at - 1] = room;
    room = write_without_library(environment[i], room);
  }
  for (std::size_t i = 0; change.library == Library::kAdded && i < our_count; ++i) {
    if (is_replaced(ours[i]) || has(environment, ours[i])) continue;
    out[at++] = const_cast<char*>(ours[i]);  // exec only reads it
  }
  if (change.directory != nullptr && *change.directory != '\0') {
    std::memcpy(room, kDirectory, sizeof kDirectory - 1);
    room[sizeof kDirectory - 1] = '=';
    std::memcpy(room + sizeof kDirectory, change.directory, std::strlen(change.directory) + 1);
    out[at++] = room;
  }
  out[at] = nullptr;
}

}  // namespace cacheshim::child_environment
