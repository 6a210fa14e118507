// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/start/own_library.h"

#include <cstring>

#include "common/loaded_symbol.h"

namespace cacheshim {
namespace {

std::string_view last_component(std::string_view path) {
  std::size_t begin = path.size();
  while (begin > 0 && path.data()[begin - 1] != '/') --begin;
  return {path.data() + begin, path.size() - begin};
}

}  // namespace

std::string_view find_word(const char* list, std::string_view path) {
  for (;;) {
    list += std::strspn(list, ": ");
    const std::string_view word(list, std::strcspn(list, ": "));
    if (word.empty() || last_component(word) == last_component(path)) return word;
    list += word.size();
  }
}

std::size_t name_own_library(const char* preload, PathBuffer& out) {
  const link_map* const own = own_object();
  if (preload == nullptr || own == nullptr) return 0;
  const std::string_view loaded(own->l_name);
  const std::string_view word = find_word(preload, loaded);
  if (word.empty()) return 0;
  if (*word.data() == '/') return join_path(out, {word});
  if (*loaded.data() == '/') return join_path(out, {loaded});
  PathBuffer directory;
  if (real::getcwd(directory.text, sizeof directory.text) == nullptr) return 0;
  return join_path(out, {directory.text, "/", loaded});
}

}  // namespace cacheshim
