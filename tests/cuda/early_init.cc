// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/fake_driver.h"

// A library that initializes the driver in its constructor, which runs before the constructor of a
// preloaded library.
[[gnu::constructor]] static void initialize() { (void)cuInit(0); }

extern "C" [[gnu::visibility("default")]] int early_init_is_linked() { return 1; }
