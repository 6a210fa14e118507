// SPDX-License-Identifier: Apache-2.0
// Fuzzes the search for paths in the files that a profile lists in `paths_in`, such as Triton's __grp__ files. The
// input is the file's content.
#include "store/base/recorded_paths.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/unique_fd.h"
#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const cacheshim::UniqueFd file(::memfd_create("paths", MFD_CLOEXEC));
  if (::write(file.get(), data, size) != static_cast<ssize_t>(size)) return 0;
  (void)::lseek(file.get(), 0, SEEK_SET);
  (void)cacheshim::names_path_outside(file.get(), "/ci-cache/triton");
  return 0;
}
