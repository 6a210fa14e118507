// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/plain_libc.h"

#include <cerrno>
#include <string>

// Finds functions by name with dlsym, calls them, and prints a line with the result of each call.
// The lines must be the same with and without the library. "@" stands for the directory under test.
namespace calls {

// The directory under test.
extern std::string root;

inline std::string at(const char* name) { return root + "/" + name; }

void* find(const char* name);
// Prints `text` as a line, with "@" in place of the directory under test.
void say(const std::string& text);

// The value of errno before each call. A different value afterwards shows that the call has set
// errno.
constexpr int kUntouched = 4242;

std::string show(long value);
std::string show(const void* pointer);  // "null" or "pointer"

// Calls function(arguments…). Prints the result and, if the call has set errno, the errno. Returns
// the result.
template <class Function, class... Arguments>
auto call(const char* name, Function function, Arguments... arguments) {
  errno = kUntouched;
  const auto result = function(arguments...);
  const int error = errno;
  say(std::string(name) + " = " + show(result) +
      (error == kUntouched ? "" : ", errno " + std::to_string(error)));
  return result;
}

// Calls the function that the dynamic linker finds for this name.
#define CALL(name, ...) \
  ::calls::call(        \
      #name, reinterpret_cast<decltype(&::name)>(::calls::find(#name)) __VA_OPT__(, ) __VA_ARGS__)

// Reads a short file with interposed calls. Returns at most the first 256 bytes.
std::string content(const std::string& path);
void write_file(const std::string& path, const std::string& text);
bool starts_programs();
// Removes a file if it exists, and prints nothing.
void forget(const std::string& path);

// The version argument of __xstat and similar functions.
#if defined(__x86_64__)
inline constexpr int kStatVersion = 1;
#else
inline constexpr int kStatVersion = 0;
#endif

template <class Stat>
void show_stat(int result, const Stat& status) {
  if (result != 0) return;
  say("  mode " + std::to_string(status.st_mode) + ", size " +
      std::to_string(S_ISDIR(status.st_mode) ? 0 : status.st_size) + ", links " +
      std::to_string(S_ISDIR(status.st_mode) ? 0 : status.st_nlink));
}

void run_open_calls();
void run_temp_calls();
void run_stat_calls();
void run_namespace_calls();
void run_directory_calls();
void run_resolve_calls();
void run_attribute_calls();
void run_process_calls();
void run_loader_calls();
void run_syscall_calls();
void run_descriptor_calls();
void run_identity_calls();

}  // namespace calls
