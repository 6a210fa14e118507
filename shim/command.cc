// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/command.h"

#include <cstring>

#include "common/unique_fd.h"
#include "shim/runtime.h"

namespace cacheshim::command {

bool next_candidate(const char*& path_list, const char* file, PathBuffer& out) {
  const char* const end = path_list + std::strcspn(path_list, ":");
  const std::string_view folder(path_list, static_cast<std::size_t>(end - path_list));
  path_list = *end == '\0' ? nullptr : end + 1;
  // An empty folder is the working folder. With a slash, it is searched for no more.
  return join_path(out, {folder.empty() ? "." : folder, "/", file}) != 0;
}

bool search_is_routed(const char* file, const char* path_list) {
  if (runtime::state.load(std::memory_order_relaxed) == runtime::State::kInactive) return false;
  if (file == nullptr || *file == '\0' || std::strchr(file, '/') != nullptr) return false;
  while (path_list != nullptr) {
    PathBuffer candidate;
    if (!next_candidate(path_list, file, candidate)) continue;
    PathBuffer buffer;
    if (!runtime::may_match(candidate.text)) continue;
    const RoutedPath routed = runtime::route({AT_FDCWD, candidate.text}, buffer);
    if (routed.kind != RoutedPath::Kind::kForeign) return true;
  }
  return false;
}

bool read_script_line(const char* path, ScriptLine& out) {
  const UniqueFd fd(real::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return false;
  const ssize_t got = ::read(fd.get(), out.text, sizeof out.text - 1);
  if (got < 3 || out.text[0] != '#' || out.text[1] != '!') return false;
  out.text[got] = '\0';
  out.text[std::strcspn(out.text, "\n")] = '\0';
  char* const interpreter = out.text + 2 + std::strspn(out.text + 2, " \t");
  char* end = interpreter + std::strcspn(interpreter, " \t");
  if (*end != '\0') {
    *end++ = '\0';
    end += std::strspn(end, " \t");
    std::size_t length = std::strlen(end);
    while (length > 0 && (end[length - 1] == ' ' || end[length - 1] == '\t')) --length;
    end[length] = '\0';
    if (length > 0) out.argument = end;
  }
  out.interpreter = interpreter;
  return runtime::may_match(interpreter);
}

}  // namespace cacheshim::command
