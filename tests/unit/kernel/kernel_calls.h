// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "tests/unit/kernel/fake_kernel.h"

namespace cacheshim {

struct OpenNode {
  std::uint64_t node = 0;
  std::uint64_t fh = 0;
  std::uint32_t flags = 0;  // FOPEN_…
};

// Sends the FUSE requests that the kernel would send for a process's calls. Each function returns
// the content of the reply, or its error.
class KernelCalls {
 public:
  explicit KernelCalls(FakeKernel& kernel) : kernel_(kernel) {}

  // Returns the node, or an error. Also returns ENOENT if the reply is a negative entry, which lets the kernel cache
  // that the name is absent.
  Result<std::uint64_t> lookup(std::uint64_t parent, const std::string& name) const;
  void forget(std::uint64_t node, std::uint64_t lookups) const;
  Result<fuse_attr> getattr(std::uint64_t node) const;
  Result<std::uint64_t> mkdir(std::uint64_t parent, const std::string& name) const;
  Result<OpenNode> create(std::uint64_t parent, const std::string& name, int flags) const;
  Result<OpenNode> open(std::uint64_t node, int flags) const;
  Result<std::string> read(const OpenNode& file, std::uint32_t size) const;
  Result<std::size_t> write(const OpenNode& file, std::string_view data) const;
  Status release(const OpenNode& file) const;
  Status rename(std::uint64_t parent, const std::string& name, std::uint64_t new_parent,
                const std::string& new_name) const;
  Status unlink(std::uint64_t parent, const std::string& name) const;
  // Returns the names in a directory, sorted, without "." and "..".
  Result<std::vector<std::string>> list(std::uint64_t directory) const;
  // Creates a file with this text and closes it.
  Status put(std::uint64_t parent, const std::string& name, std::string_view text) const;
  // Returns the content of the file.
  Result<std::string> get(std::uint64_t parent, const std::string& name) const;

 private:
  FakeKernel& kernel_;
};

}  // namespace cacheshim
