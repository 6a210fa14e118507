// SPDX-License-Identifier: Apache-2.0
extern "C" [[gnu::visibility("default")]] int chained() { return 1; }
extern "C" [[gnu::visibility("default")]] int base_is_linked() { return 1; }
