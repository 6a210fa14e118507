// SPDX-License-Identifier: Apache-2.0
// Contains calls of all kinds for scripts/which-calls to find. It is never run.
#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/xattr.h>

int expand(void);

int main(void) { return open("x", O_RDONLY) + (int)flistxattr(0, 0, 0) + (int)ftok("x", 1) + expand(); }
