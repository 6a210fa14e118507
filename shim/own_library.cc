// SPDX-License-Identifier: Apache-2.0
#include "shim/real_function.h"

#include "shim/own_library.h"

#include <cstring>

// dladdr by its first version, as dlsym in real_function.cc.
extern "C" int cacheshim_dladdr(const void* address, Dl_info* out);
#if defined(__x86_64__)
__asm__(".symver cacheshim_dladdr, dladdr@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver cacheshim_dladdr, dladdr@GLIBC_2.17");
#endif

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
  Dl_info info{};
  static const char anchor = 0;
  if (preload == nullptr || cacheshim_dladdr(&anchor, &info) == 0) return 0;
  const std::string_view loaded(info.dli_fname);
  const std::string_view word = find_word(preload, loaded);
  if (word.empty()) return 0;
  if (*word.data() == '/') return join_path(out, {word});
  if (*loaded.data() == '/') return join_path(out, {loaded});
  PathBuffer folder;
  if (real::getcwd(folder.text, sizeof folder.text) == nullptr) return 0;
  return join_path(out, {folder.text, "/", loaded});
}

}  // namespace cacheshim
