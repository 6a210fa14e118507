// SPDX-License-Identifier: Apache-2.0
int leaf(void);
int branch(void);
int branch(void) { return leaf() + 1; }
