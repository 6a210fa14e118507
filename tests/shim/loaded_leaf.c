// SPDX-License-Identifier: Apache-2.0
// loaded_branch.c needs this library, but does not name its directory.
int leaf(void);
int leaf(void) { return 42; }
