// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/fake_driver.h"

// A library that initializes the driver in its own constructor, which runs before a preloaded
// library's.
[[gnu::constructor]] static void initialise() { (void)cuInit(0); }

extern "C" [[gnu::visibility("default")]] int early_init_is_linked() { return 1; }
