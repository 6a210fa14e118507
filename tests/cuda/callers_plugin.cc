// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

// This library is linked to callers_dependency and opened with RTLD_LOCAL. So dlsym(RTLD_DEFAULT)
// finds more symbols for this library than for the program.
extern "C" int only_for_the_plugin();

extern "C" [[gnu::visibility("default")]] int plugin_sees() {
  auto* const found = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "only_for_the_plugin"));
  return found == nullptr ? -1 : found() + only_for_the_plugin();
}
