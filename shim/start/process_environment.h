// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

#include "common/job_id.h"
#include "common/names.h"

namespace cacheshim {

// The environment of this process. Does not call getenv, because bash exports its own getenv.
class ProcessEnvironment final : public Environment {
 public:
  std::string_view find(std::string_view name) const override {
    if (::environ == nullptr) return {};
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
      if (std::strncmp(*entry, name.data(), name.size()) != 0) continue;
      if ((*entry)[name.size()] == '=') return *entry + name.size() + 1;
    }
    return {};
  }
  bool is_on(std::string_view name) const {
    const std::string_view value = find(name);
    return !value.empty() && value != "0";
  }
  // Whether the library is disabled in this process.
  bool is_disabled() const { return ::getauxval(AT_SECURE) != 0 || is_on(kDisableVariable); }
};

}  // namespace cacheshim
