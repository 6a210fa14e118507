// SPDX-License-Identifier: Apache-2.0
#include <wordexp.h>

int expand(void);
int expand(void) {
  wordexp_t words;
  return wordexp("*", &words, 0);
}
