// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

// Opened with RTLD_LOCAL and linked to callers_dependency: here, RTLD_DEFAULT finds more symbols
// than in main.
extern "C" int only_for_the_plugin();

extern "C" [[gnu::visibility("default")]] int plugin_sees() {
  auto* const found = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "only_for_the_plugin"));
  return found == nullptr ? -1 : found() + only_for_the_plugin();
}
