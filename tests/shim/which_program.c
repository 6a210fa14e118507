// SPDX-License-Identifier: Apache-2.0
// Calls of all kinds, for scripts/which-calls to find. Never run.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/ipc.h>

int expand(void);

int main(void) { return open("x", O_RDONLY) + flock(0, LOCK_SH) + (int)ftok("x", 1) + expand(); }
