// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

// Compares cuda_hooks/driver_api.h with a toolkit's cuda.h. The compiler compares the functions
// when it compiles api_values.cc. This program compares the values.
extern const long api_values_of_cuda_h[];
extern const long api_values_of_ours[];

int main() {
  int at = 0;
  for (; api_values_of_ours[at] != -1; ++at) {
    if (api_values_of_ours[at] == api_values_of_cuda_h[at]) continue;
    std::printf("value %d: ours %ld, cuda.h %ld\n", at, api_values_of_ours[at],
                api_values_of_cuda_h[at]);
    return 1;
  }
  std::printf("%d values agree\n", at);
  return at > 0 && api_values_of_cuda_h[at] == -1 ? 0 : 1;
}
