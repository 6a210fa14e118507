// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/client.h"

// This client is linked to the driver. It is built as a program, and as a library. client_open.cc opens the library in
// the same way as Python opens Triton's extension.
extern "C" [[gnu::visibility("default")]] int client_main(int argc, char** argv) {
  cacheshim::test::Api api;
#define CACHESHIM_TEST_FUNCTION(name) api.name = &::name;
#include "tests/cuda/functions.def"
#undef CACHESHIM_TEST_FUNCTION
  return cacheshim::test::run_scenario(api, cacheshim::test::read_scenario(argc, argv));
}

#ifdef CACHESHIM_TEST_PROGRAM
#ifdef CACHESHIM_TEST_EARLY
extern "C" int early_init_is_linked();
#else
static int early_init_is_linked() { return 1; }
#endif
int main(int argc, char** argv) {
  return early_init_is_linked() == 1 ? client_main(argc - 1, argv + 1) : 1;
}
#endif
