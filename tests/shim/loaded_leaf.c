// SPDX-License-Identifier: Apache-2.0
// The library of loaded_branch.c needs this library, but has no RPATH to its directory.
int leaf(void);
int leaf(void) { return 42; }
