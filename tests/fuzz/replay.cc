// SPDX-License-Identifier: Apache-2.0
// Calls a fuzz target with every file of a directory, without libFuzzer: a regression test that any compiler builds.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/target.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::printf("%s\n", file.c_str());  // the last line before a crash names the input
    (void)std::fflush(stdout);
    std::ifstream stream(file, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
    (void)LLVMFuzzerTestOneInput(
        static_cast<const std::uint8_t*>(static_cast<const void*>(bytes.data())), bytes.size());
  }
  return files.empty() ? 1 : 0;
}
