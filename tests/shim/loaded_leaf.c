// SPDX-License-Identifier: Apache-2.0
// Needed by loaded_branch.c, which says nothing of where it lies.
int leaf(void);
int leaf(void) { return 42; }
